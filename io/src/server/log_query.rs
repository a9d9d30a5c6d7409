//! `/logs/?query=…`: logs of services of the node, from its journal or from files below the log folder.
//!
//! Reads the query, `journalctl`'s output and files; `enableSystemLogQuery` turns it on. What a query says becomes single
//! arguments of one program, never a command line.

use super::body::{Body, TEXT, response};
use super::node_logs::below;
use super::query;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode, Uri};
use jiff::Timestamp;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Time for everything that one request asks for.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most lines from the end.
const MAX_LINES: i64 = 100_000;
/// Services of one request.
const MAX_SERVICES: usize = 4;
/// Characters of a service's name.
const MAX_NAME: usize = 256;
/// Bytes of a portion of output.
const PORTION: usize = 32 << 10;

/// What a query asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct LogQuery {
    services: Vec<String>,
    files: Vec<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// What is done with a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// It asks for nothing of this: its path is shown.
    Path,
    /// It asks for one file, below the log folder.
    File(String),
    /// This is the answer.
    Whole(Response<Body>),
}

/// Answers a request, if it asks for logs of services.
pub(super) async fn answer(folder: &Path, uri: &Uri, headers: &HeaderMap) -> Answer {
    answer_with(Path::new("journalctl"), folder, uri, headers).await
}

async fn answer_with(journal: &Path, folder: &Path, uri: &Uri, headers: &HeaderMap) -> Answer {
    let refuse = |status, problems: &[String]| {
        let text = if let [one] = problems { one.clone() } else { format!("[{}]", problems.join(", ")) };
        Answer::Whole(response(status, TEXT, text + "\n"))
    };
    let query = match LogQuery::read(uri.query().unwrap_or_default()) {
        Ok(Some(query)) => query,
        Ok(None) => return Answer::Path,
        Err(problems) => return refuse(StatusCode::BAD_REQUEST, &problems),
    };
    if !query::parts(uri.path()).is_empty() {
        return Answer::Whole(response(StatusCode::NOT_ACCEPTABLE, TEXT, "path not allowed in query mode\n"));
    }
    let mut problems = query.problems();
    if let ([file], true) = (&query.files[..], problems.is_empty())
        && below(folder, &folder.join(file.trim_start_matches('/'))).await.is_none()
    {
        problems.push(invalid("query", &list(&query.files), &format!("{file}: no such file or directory")));
    }
    if !problems.is_empty() {
        return refuse(StatusCode::NOT_ACCEPTABLE, &problems);
    }
    if let [file] = &query.files[..] {
        return Answer::File(file.trim_start_matches('/').to_owned());
    }
    let gzip = headers.get(ACCEPT_ENCODING).is_some_and(|value| value == "gzip");
    let (sender, receiver) = mpsc::channel(4);
    let (journal, folder) = (journal.to_owned(), folder.to_owned());
    tokio::spawn(async move {
        let encoder = gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        let mut out = Out { encoder, sender };
        // Whoever asked may have gone: then nobody hears of the rest.
        let _ = tokio::time::timeout(DEADLINE, query.copy(&journal, &folder, &mut out)).await;
        let _ = out.finish().await;
    });
    let mut whole = Response::new(Body::pieces(ReceiverStream::new(receiver)));
    whole.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain;charset=UTF-8"));
    if gzip {
        whole.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Answer::Whole(whole)
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

fn list(values: &[String]) -> String {
    serde_json::Value::from(values.to_vec()).to_string()
}

impl LogQuery {
    /// Reads a query; `None` when it says nothing of this.
    fn read(text: &str) -> Result<Option<Self>, Vec<String>> {
        let pairs = query::pairs(text);
        let mut read = Self::default();
        let mut problems = Vec::new();
        let asked = query::all(&pairs, "query");
        for one in &asked {
            // A slash makes it a file. Without one it is a service, which may have a file too.
            if one.contains(['/', '\\']) {
                read.files.push(one.replace('\\', "/"));
            } else if !one.trim().is_empty() {
                read.services.push(one.clone());
            }
        }
        if !asked.is_empty() && read.files.is_empty() && read.services.is_empty() {
            problems.push(invalid("query", &list(&asked), "may not be empty"));
        }
        for (field, place) in [("sinceTime", &mut read.since), ("untilTime", &mut read.until)] {
            let value = query::first(&pairs, field);
            match value.parse() {
                _ if value.is_empty() => {}
                Ok(time) => *place = Some(time),
                Err(_) => problems.push(invalid(field, &format!("{value:?}"), "invalid time format")),
            }
        }
        for (field, place) in [("boot", &mut read.boot), ("tailLines", &mut read.lines)] {
            let value = query::first(&pairs, field);
            match value.parse() {
                _ if value.is_empty() => {}
                Ok(number) => *place = Some(number),
                Err(_) => {
                    let why = format!("strconv.Atoi: parsing {value:?}: invalid syntax");
                    problems.push(invalid(field, &format!("{value:?}"), &why));
                }
            }
        }
        query::first(&pairs, "pattern").clone_into(&mut read.pattern);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok((read != Self::default()).then_some(read))
    }

    /// Everything that is wrong with it.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        for name in &self.services {
            if name.len() > MAX_NAME {
                problems.push(invalid("query", &format!("{name:?}"), &format!("length must be less than {MAX_NAME}")));
            } else if !name.chars().all(safe) {
                problems.push(invalid("query", &format!("{name:?}"), "input contains unsupported characters"));
            }
        }
        let count = self.services.len();
        if count > MAX_SERVICES {
            problems.push(format!("query: Too many: {count}: must have at most {MAX_SERVICES} items"));
        }
        match (&self.files[..], count) {
            ([], 0) => problems.push("query: Required value: cannot be empty with options".to_owned()),
            ([], _) => {}
            (files, 1..) => {
                let both = format!("\"[{}], [{}]\"", files.join(" "), self.services.join(" "));
                problems.push(invalid("query", &both, "cannot specify a file and service"));
            }
            ([_], 0) if self.has_options() => {
                problems.push(invalid("query", &list(&self.files), "cannot specify file with options"));
            }
            ([_], 0) => {}
            (files, 0) => problems.push(invalid("query", &list(files), "cannot specify more than one file")),
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            problems.push(invalid("untilTime", &format!("\"{until}\""), "must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            problems.push(invalid("boot", &boot.to_string(), "must be less than 1"));
        }
        if let Some(lines) = self.lines.filter(|lines| !(0..=MAX_LINES).contains(lines)) {
            let why = format!("must be between 0 and {MAX_LINES}, inclusive");
            problems.push(invalid("tailLines", &lines.to_string(), &why));
        }
        problems
    }

    fn has_options(&self) -> bool {
        let Self { since, until, lines, boot, pattern, .. } = self;
        since.is_some() || until.is_some() || lines.is_some() || boot.is_some() || !pattern.is_empty()
    }

    /// Arguments of `journalctl` for these services.
    fn arguments(&self, services: &[&str]) -> Vec<String> {
        let mut args = vec!["--utc".to_owned(), "--no-pager".to_owned(), "--output=short-precise".to_owned()];
        // Seconds since 1970 mean the same in every time zone.
        args.extend(self.since.map(|time| format!("--since=@{}", time.as_second())));
        args.extend(self.until.map(|time| format!("--until=@{}", time.as_second())));
        if let Some(lines) = self.lines {
            args.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        args.extend(services.iter().map(|service| format!("--unit={service}")));
        args.extend((!self.pattern.is_empty()).then(|| format!("--grep={}", self.pattern)));
        if let Some(boot) = self.boot {
            args.extend(["--boot".to_owned(), boot.to_string()]);
        }
        args
    }

    /// Writes the logs of all services; an error says that nobody reads any more.
    async fn copy(&self, journal: &Path, folder: &Path, out: &mut Out) -> Result<(), Gone> {
        let known = units(journal).await;
        let of_journal = |service: &&str| known.contains(&format!("{service}.service"));
        let all = self.services.iter().map(String::as_str);
        let (native, others): (Vec<&str>, Vec<&str>) = all.partition(of_journal);
        if !native.is_empty() {
            self.copy_journal(journal, &native, out).await?;
        }
        if !others.is_empty() && self.has_options() {
            let names = others.join(" ");
            let text = format!(
                "\noptions present and query resolved to log files for [{names}]\ntry without specifying options\n"
            );
            return out.put(text.as_bytes()).await;
        }
        for service in others {
            copy_file(folder, service, out).await?;
        }
        Ok(())
    }

    async fn copy_journal(&self, journal: &Path, services: &[&str], out: &mut Out) -> Result<(), Gone> {
        let mut command = Command::new(journal);
        command.args(self.arguments(services)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.kill_on_drop(true).spawn() else {
            return out.put(b"\nerror: journal output not available\n").await;
        };
        if let Some(stdout) = child.stdout.take() {
            pump(stdout, out).await?;
        }
        if let Some(stderr) = child.stderr.take() {
            pump(stderr, out).await?;
        }
        // Its end says nothing that its output did not.
        let _ = child.wait().await;
        Ok(())
    }
}

/// The units that the journal knows; none where there is no journal.
async fn units(journal: &Path) -> String {
    let mut command = Command::new(journal);
    command.args(["--field", "_SYSTEMD_UNIT"]).stdin(Stdio::null()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => String::new(),
    }
}

/// Writes the first file that can be the service's log.
async fn copy_file(folder: &Path, service: &str, out: &mut Out) -> Result<(), Gone> {
    for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
        let Some(path) = below(folder, &folder.join(name)).await else { continue };
        match open(&path).await {
            Ok(Some(file)) => return pump(file, out).await,
            Ok(None) => {}
            Err(error) => return out.put(format!("\nerror getting log for {service}: {error}\n").as_bytes()).await,
        }
    }
    out.put(format!("\nlog not found for {service}\n").as_bytes()).await
}

/// The file as it is now; none for what is no plain file.
async fn open(path: &PathBuf) -> io::Result<Option<impl AsyncRead + Unpin + use<>>> {
    let meta = tokio::fs::metadata(path).await?;
    if !meta.is_file() {
        return Ok(None);
    }
    Ok(Some(tokio::fs::File::open(path).await?.take(meta.len())))
}

/// Nobody reads what is written.
#[derive(Debug)]
struct Gone;

/// Where output goes, packed or not.
struct Out {
    encoder: Option<GzEncoder<Vec<u8>>>,
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Out {
    async fn put(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let portion = match &mut self.encoder {
            None => Bytes::copy_from_slice(bytes),
            Some(encoder) => {
                // Into memory, which takes everything.
                encoder.write_all(bytes).map_err(|_| Gone)?;
                Bytes::from(std::mem::take(encoder.get_mut()))
            }
        };
        if portion.is_empty() { Ok(()) } else { self.sender.send(Ok(portion)).await.map_err(|_| Gone) }
    }

    async fn finish(self) -> Result<(), Gone> {
        let Some(rest) = self.encoder.map(GzEncoder::finish) else { return Ok(()) };
        self.sender.send(rest.map(Bytes::from)).await.map_err(|_| Gone)
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, out: &mut Out) -> Result<(), Gone> {
    let mut portion = vec![0; PORTION];
    loop {
        match from.read(&mut portion).await {
            Ok(0) => return Ok(()),
            Ok(count) => out.put(portion.get(..count).unwrap_or_default()).await?,
            Err(error) => return out.put(format!("\n{error}\n").as_bytes()).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    struct Rig(tempfile::TempDir);

    impl Rig {
        fn new() -> Self {
            let rig = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(rig.0.path().join("log/deep")).unwrap();
            for (name, text) in [("plain", "of plain\n"), ("dotted.log", "of dotted\n"), ("deep/deep.log", "of deep\n")]
            {
                fs::write(rig.0.path().join("log").join(name), text).unwrap();
            }
            fs::write(rig.0.path().join("secret"), "hidden").unwrap();
            let script =
                "#!/bin/sh\nif [ \"$1\" = --field ]; then echo sshd.service; else echo \"$@\"; echo oh >&2; fi\n";
            let journal = rig.0.path().join("journalctl");
            fs::write(&journal, script).unwrap();
            fs::set_permissions(&journal, fs::Permissions::from_mode(0o755)).unwrap();
            rig
        }

        async fn ask(&self, path: &str, gzip: bool) -> (u16, String) {
            let mut headers = HeaderMap::new();
            headers.extend(gzip.then(|| (ACCEPT_ENCODING, HeaderValue::from_static("gzip"))));
            let (journal, folder) = (self.0.path().join("journalctl"), self.0.path().join("log"));
            match answer_with(&journal, &folder, &path.parse().unwrap(), &headers).await {
                Answer::Path => (0, "path".to_owned()),
                Answer::File(file) => (0, file),
                Answer::Whole(answer) => {
                    let (head, body) = answer.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let mut text = String::new();
                    if gzip && head.headers.contains_key(CONTENT_ENCODING) {
                        GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
                    } else {
                        text = String::from_utf8(body.to_vec()).unwrap();
                    }
                    (head.status.as_u16(), text)
                }
            }
        }
    }

    #[tokio::test]
    async fn services_come_from_the_journal_or_from_files() {
        let rig = Rig::new();
        let (code, text) =
            rig.ask("/logs/?query=sshd&tailLines=3&sinceTime=1970-01-01T00:00:09Z&boot=-1&pattern=a+b", false).await;
        let args =
            "--utc --no-pager --output=short-precise --since=@9 --pager-end --lines=3 --unit=sshd --grep=a b --boot -1";
        assert_eq!((code, text), (200, format!("{args}\noh\n")));
        for gzip in [false, true] {
            let (code, text) = rig.ask("/logs/?query=plain&query=dotted&query=deep&query=none", gzip).await;
            assert_eq!((code, text.as_str()), (200, "of plain\nof dotted\nof deep\n\nlog not found for none\n"));
        }
        let (_, text) = rig.ask("/logs/?query=plain&tailLines=3", false).await;
        assert_eq!(
            text,
            "\noptions present and query resolved to log files for [plain]\ntry without specifying options\n"
        );
        assert_eq!(rig.ask("/logs/?query=/deep/deep.log", false).await, (0, "deep/deep.log".to_owned()));
        assert_eq!(rig.ask("/logs/plain", false).await, (0, "path".to_owned()));
        assert_eq!(rig.ask("/logs/?other=1", false).await, (0, "path".to_owned()));
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_refused() {
        let rig = Rig::new();
        for (path, code, text) in [
            ("/logs/?query=+", 400, "query: Invalid value: [\" \"]: may not be empty"),
            ("/logs/?query=a&sinceTime=x", 400, "sinceTime: Invalid value: \"x\": invalid time format"),
            (
                "/logs/?query=a&boot=x&tailLines=y",
                400,
                "[boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax, ",
            ),
            ("/logs/a?query=a", 406, "path not allowed in query mode"),
            ("/logs/?tailLines=3", 406, "query: Required value: cannot be empty with options"),
            ("/logs/?query=a;b", 406, "query: Invalid value: \"a;b\": input contains unsupported characters"),
            ("/logs/?query=a&query=b&query=c&query=d&query=e", 406, "query: Too many: 5: must have at most 4 items"),
            ("/logs/?query=a&query=/b", 406, "query: Invalid value: \"[/b], [a]\": cannot specify a file and service"),
            (
                "/logs/?query=/a&query=/b",
                406,
                "query: Invalid value: [\"/a\",\"/b\"]: cannot specify more than one file",
            ),
            ("/logs/?query=/plain&boot=0", 406, "query: Invalid value: [\"/plain\"]: cannot specify file with options"),
            ("/logs/?query=/../secret", 406, "query: Invalid value: [\"/../secret\"]: /../secret: no such file"),
            ("/logs/?query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1"),
            (
                "/logs/?query=a&tailLines=100001",
                406,
                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
            ),
        ] {
            let (found, said) = rig.ask(path, false).await;
            assert_eq!(found, code, "{path}: {said}");
            assert!(said.starts_with(text), "{path}: {said}");
        }
    }
}
