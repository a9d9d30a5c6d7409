//! The beginning of an HTTP/1 answer: status, where it redirects to, and whether its body is complete.

/// Most bytes of a head; more is no answer to a probe.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// Bytes of a body that are read before the target is left alone. A stream without end passes at that point.
const MAX_BODY: usize = 10 * 1024;

/// The head of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Status code.
    pub(super) status: u16,
    /// `Location`.
    pub(super) location: Option<String>,
    /// Bytes before the body.
    length: usize,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    None,
    Sized(usize),
    Chunked,
    UntilClose,
}

impl Head {
    /// The head in these bytes, once it is whole. Informational answers before it are skipped.
    pub(super) fn find(mut bytes: &[u8]) -> Result<Option<Self>, String> {
        let mut skipped = 0;
        loop {
            let Some(end) = end_of_head(bytes) else {
                return if bytes.len() > MAX_HEAD {
                    Err("the answer's headers are too long".to_owned())
                } else {
                    Ok(None)
                };
            };
            let mut head = Self::parse(&bytes[..end])?;
            if (100..200).contains(&head.status) && head.status != 101 {
                skipped += end;
                bytes = &bytes[end..];
                continue;
            }
            head.length = skipped + end;
            return Ok(Some(head));
        }
    }

    fn parse(head: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
        let first = lines.next().unwrap_or_default();
        let bad =
            || format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response {:?}", cut(first));
        let rest = first.strip_prefix("HTTP/1.").ok_or_else(bad)?;
        let code = rest.split(' ').nth(1).filter(|code| code.len() == 3).ok_or_else(bad)?;
        let status = code.parse().map_err(|_| bad())?;
        let mut out = Self { status, location: None, length: 0, body: Body::UntilClose };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("location") {
                out.location = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
                out.body = Body::Chunked;
            } else if name.eq_ignore_ascii_case("content-length") && out.body == Body::UntilClose {
                out.body = Body::Sized(value.parse().map_err(|_| format!("bad Content-Length {:?}", cut(value)))?);
            }
        }
        if matches!(status, 204 | 304) {
            out.body = Body::None;
        }
        Ok(out)
    }

    /// The body of a redirect, as far as it was read; other bodies are nobody's business.
    pub(super) fn text(&self, bytes: &[u8]) -> String {
        let body = bytes.get(self.length..).unwrap_or_default();
        match self.body {
            _ if !(300..400).contains(&self.status) => String::new(),
            Body::None => String::new(),
            Body::Sized(length) => String::from_utf8_lossy(&body[..length.min(body.len())]).into_owned(),
            Body::Chunked => chunks(body),
            Body::UntilClose => String::from_utf8_lossy(body).into_owned(),
        }
    }

    /// True when no more of the body is to be read.
    pub(super) fn is_complete(&self, bytes: &[u8]) -> bool {
        let body = bytes.get(self.length..).unwrap_or_default();
        if body.len() >= MAX_BODY {
            return true;
        }
        match self.body {
            Body::None => true,
            Body::Sized(length) => body.len() >= length,
            Body::Chunked => chunks_end(body),
            Body::UntilClose => false,
        }
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let crlf = bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
    let bare = bytes.windows(2).position(|w| w == b"\n\n").map(|at| at + 2);
    crlf.into_iter().chain(bare).min()
}

/// The data of the chunks that are there.
fn chunks(mut body: &[u8]) -> String {
    let mut data = Vec::new();
    while let Some(line) = body.iter().position(|b| *b == b'\n') {
        let size = String::from_utf8_lossy(&body[..line]);
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16).unwrap_or_default();
        let Some(chunk) = body.get(line + 1..line + 1 + size).filter(|_| size > 0) else { break };
        data.extend(chunk);
        let rest = &body[line + 1 + size..];
        body = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")).unwrap_or_default();
    }
    String::from_utf8_lossy(&data).into_owned()
}

/// True when the last chunk is there.
fn chunks_end(mut body: &[u8]) -> bool {
    loop {
        let Some(line) = body.iter().position(|b| *b == b'\n') else { return false };
        let size = String::from_utf8_lossy(&body[..line]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else { return true };
        if size == 0 {
            return true;
        }
        match body.get(line + 1 + size..) {
            // The line end after the chunk's data.
            Some(rest) => body = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")).unwrap_or_default(),
            None => return false,
        }
    }
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expect: Result<Option<(u16, bool)>, &str>) {
        let found = Head::find(answer.as_bytes());
        let found = found.map(|head| head.map(|h| (h.status, h.is_complete(answer.as_bytes()))));
        assert_eq!(found.as_ref().map_err(|e| e.as_str().split(' ').next().unwrap()), expect.as_ref().map_err(|e| *e));
    }

    #[test]
    fn heads_are_told_from_noise() {
        check("", Ok(None));
        check("HTTP/1.1 200 OK\r\nContent-Le", Ok(None));
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", Ok(Some((200, false))));
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok(Some((200, true))));
        check("HTTP/1.0 503 \r\n\r\n", Ok(Some((503, false))));
        check("HTTP/1.1 204 No\n\n", Ok(Some((204, true))));
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n", Ok(Some((404, true))));
        check("SSH-2.0-OpenSSH\r\n\r\n", Err("net/http:"));
        check("HTTP/1.1 abc\r\n\r\n", Err("net/http:"));
    }

    #[test]
    fn only_a_redirect_has_a_text() {
        let text = |answer: &str| Head::find(answer.as_bytes()).unwrap().unwrap().text(answer.as_bytes());
        assert_eq!(text("HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\nthere"), "ther");
        assert_eq!(
            text("HTTP/1.1 302 Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nth\r\n3\r\nere\r\n0\r\n\r\n"),
            "there"
        );
        assert_eq!(text("HTTP/1.1 304 Same\r\n\r\n"), "");
        assert_eq!(text("HTTP/1.1 500 No\r\nContent-Length: 6\r\n\r\nsecret"), "");
    }

    #[test]
    fn chunks_are_followed_to_the_last() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{head}5\r\nhel"), Ok(Some((200, false))));
        check(&format!("{head}5\r\nhello\r\n"), Ok(Some((200, false))));
        check(&format!("{head}5\r\nhello\r\n0\r\n\r\n"), Ok(Some((200, true))));
        check(&format!("{head}{}", "4\r\nabcd\r\n".repeat(2000)), Ok(Some((200, true))));
    }
}
