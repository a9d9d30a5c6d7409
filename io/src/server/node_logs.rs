//! `/logs/PATH`: files and folders below the node's log folder, as Go's file server shows them; with a query, logs of services.
//!
//! A path is cleaned before it is used and must stay below the folder, links resolved: the log folder may be written to
//! by services that may not read the rest of the machine.

use super::body::{Body, TEXT, response};
use super::{log_query, query};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use http::{Response, StatusCode, Uri};
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

/// Where the node's logs lie.
const FOLDER: &str = "/var/log";
/// Bytes of a portion of a file.
const PORTION: usize = 64 << 10;

/// Answers a request; `queries` says whether it may ask for services.
pub(super) async fn serve(uri: &Uri, headers: &HeaderMap, queries: bool) -> Response<Body> {
    let folder = Path::new(FOLDER);
    let answer = if queries { log_query::answer(folder, uri, headers).await } else { log_query::Answer::Path };
    match answer {
        log_query::Answer::Path => of(folder, uri).await,
        log_query::Answer::File(file) => {
            let parts = file.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
            show(folder, parts, file.ends_with('/')).await
        }
        log_query::Answer::Whole(answer) => answer,
    }
}

async fn of(folder: &Path, uri: &Uri) -> Response<Body> {
    show(folder, query::parts(uri.path()), uri.path().ends_with('/')).await
}

async fn show(folder: &Path, parts: Vec<String>, slash: bool) -> Response<Body> {
    let not_found = || response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
    if parts.iter().any(|part| part == ".." || part.contains(['/', '\0'])) {
        return response(StatusCode::BAD_REQUEST, TEXT, "invalid URL path\n");
    }
    let wanted = parts.iter().fold(folder.to_owned(), |path, part| path.join(part));
    let Some(path) = below(folder, &wanted).await else { return not_found() };
    let Ok(meta) = tokio::fs::metadata(&path).await else { return not_found() };
    if meta.is_dir() && slash {
        return match listing(&path).await {
            Ok(page) => response(StatusCode::OK, "text/html; charset=utf-8", page),
            Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        };
    }
    if meta.is_dir() || slash {
        // As the file server does: folders end in a slash, files do not.
        let last = parts.last().map_or("logs", String::as_str);
        return moved(&if slash { format!("../{last}") } else { format!("{last}/") });
    }
    // Pipes and devices would hold the request for ever.
    if !meta.is_file() {
        return not_found();
    }
    match tokio::fs::File::open(&path).await {
        Ok(file) => {
            // A log may grow while it is sent: what was promised is what is sent.
            let pieces = ReaderStream::with_capacity(file.take(meta.len()), PORTION);
            let mut answer = Response::new(Body::pieces(pieces));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(meta.len()));
            answer
        }
        Err(_) => response(StatusCode::FORBIDDEN, TEXT, "403 Forbidden\n"),
    }
}

/// The path without links, when it stays below the folder.
pub(super) async fn below(folder: &Path, wanted: &Path) -> Option<PathBuf> {
    let folder = tokio::fs::canonicalize(folder).await.ok()?;
    tokio::fs::canonicalize(wanted).await.ok().filter(|path| path.starts_with(folder))
}

fn moved(to: &str) -> Response<Body> {
    let mut answer = response(StatusCode::MOVED_PERMANENTLY, TEXT, "");
    if let Ok(value) = HeaderValue::from_str(&encode(to)) {
        answer.headers_mut().insert(LOCATION, value);
    }
    answer
}

async fn listing(dir: &Path) -> std::io::Result<String> {
    let mut entries = tokio::fs::read_dir(dir).await?;
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        let slash = if entry.file_type().await.is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        page.push_str(&format!("<a href=\"{}\">{}</a>\n", encode(&name), escape(&name)));
    }
    page.push_str("</pre>\n");
    Ok(page)
}

/// Percent-encodes what has a meaning in a link.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/+=@,".contains(&byte);
    text.bytes().fold(String::new(), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::fs;

    async fn ask(folder: &Path, path: &str) -> (u16, String) {
        let answer = of(folder, &path.parse().unwrap()).await;
        let (head, body) = answer.into_parts();
        let place = head.headers.get(LOCATION).map(|value| value.to_str().unwrap().to_owned());
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), place.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()))
    }

    #[tokio::test]
    async fn only_what_lies_below_the_folder_is_shown() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("log");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("a&b.log"), "line\n").unwrap();
        fs::write(top.path().join("secret"), "hidden").unwrap();
        std::os::unix::fs::symlink(top.path().join("secret"), folder.join("link")).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(ask(&folder, "/logs/a&b.log").await, (200, "line\n".to_owned()));
        assert_eq!(ask(&folder, "/logs/a%26b.log").await.0, 200);
        let (code, page) = ask(&folder, "/logs/").await;
        assert_eq!(code, 200);
        assert!(
            page.contains("<a href=\"sub/\">sub/</a>") && page.contains("<a href=\"a%26b.log\">a&amp;b.log</a>"),
            "{page}"
        );
        assert_eq!(ask(&folder, "/logs").await, (301, "logs/".to_owned()));
        assert_eq!(ask(&folder, "/logs/sub").await, (301, "sub/".to_owned()));
        assert_eq!(ask(&folder, "/logs/a&b.log/").await, (301, "../a%26b.log".to_owned()));
        for path in ["/logs/link", "/logs/none", "/logs/pipe"] {
            assert_eq!(ask(&folder, path).await.0, 404, "{path}");
        }
        for path in ["/logs/../secret", "/logs/%2e%2e/secret", "/logs/..%2Fsecret"] {
            assert_eq!(ask(&folder, path).await.0, 400, "{path}");
        }
    }
}
