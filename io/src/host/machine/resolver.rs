//! The node's resolver configuration.

use super::super::HostError;
use components::edge::FailureClass;
use components::edge::cri::DnsConfig;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is read.
const MAX_BYTES: u64 = 10 << 20;

/// Reads and parses a file in the form of `resolv.conf`.
pub(super) fn read(path: &Path) -> Result<DnsConfig, HostError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| HostError::io("read", path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("{} is larger than {} MiB", path.display(), MAX_BYTES >> 20);
        return Err(HostError::new(FailureClass::Exhausted, message));
    }
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Every `nameserver` line counts, of `search` and `options` the last one.
fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                config.searches = words
                    .map(|domain| if domain == "." { domain } else { domain.trim_end_matches('.') })
                    .map(str::to_owned)
                    .collect();
            }
            Some("options") => config.options = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, servers: &str, searches: &str, options: &str) {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let expect = DnsConfig { servers: words(servers), searches: words(searches), options: words(options) };
        assert_eq!(parse(text), expect);
    }

    #[test]
    fn resolver_files_are_parsed() {
        check("", "", "", "");
        check("nameserver 1.1.1.1\nnameserver\t2.2.2.2 \nnameserver\n", "1.1.1.1 2.2.2.2", "", "");
        check("search a.b. c\nsearch d.e. .\noptions x\noptions ndots:2 rotate\n", "", "d.e .", "ndots:2 rotate");
        check(" # nameserver 9.9.9.9\n;search x\nsortlist 1\nsearch\n", "", "", "");
    }

    #[test]
    fn a_file_too_large_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(read(file.path()).unwrap_err().class, FailureClass::Exhausted);
    }
}
