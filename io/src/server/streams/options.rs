//! What the query of a stream request asks for.

use crate::cri::streams::Wanted;
use crate::server::query;
use http::HeaderMap;

type Pairs = [(String, String)];

/// Which streams of a process are wanted.
///
/// # Errors
/// When none is.
pub(super) fn wanted(pairs: &Pairs) -> Result<Wanted, String> {
    let on = |key: &str| query::first(pairs, key) == "1";
    let tty = on("tty");
    // A terminal has one output.
    let wanted = Wanted { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
    if !wanted.stdin && !wanted.stdout && !wanted.stderr {
        return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
    }
    Ok(wanted)
}

/// The ports that a WebSocket of the older kind must name beforehand; others name them stream by stream.
///
/// # Errors
/// When they are missing or wrong.
pub(super) fn ports(headers: &HeaderMap, pairs: &Pairs) -> Result<Vec<i32>, String> {
    if !super::websocket::is_asked_for(headers) || super::websocket::tunnel_protocol(headers).is_some() {
        return Ok(Vec::new());
    }
    let given = query::all(pairs, "port");
    if given.is_empty() {
        return Err("query parameter \"port\" is required".to_owned());
    }
    let mut ports = Vec::new();
    for text in &given {
        if text.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in text.split(',') {
            ports.push(number(port).map_err(|reason| match reason {
                Reason::Zero => format!("port {text:?} must be > 0"),
                Reason::No(why) => {
                    format!("unable to parse {text:?} as a port: strconv.ParseUint: parsing {port:?}: {why}")
                }
            })?);
        }
    }
    Ok(ports)
}

enum Reason {
    Zero,
    No(&'static str),
}

fn number(text: &str) -> Result<i32, Reason> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Reason::No("invalid syntax"));
    }
    match text.parse::<u16>() {
        Ok(0) => Err(Reason::Zero),
        Ok(port) => Ok(port.into()),
        Err(_) => Err(Reason::No("value out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ports(query: &str, expect: &str) {
        let mut headers = HeaderMap::new();
        headers.insert("connection", "Upgrade".parse().unwrap());
        headers.insert("upgrade", "WebSocket".parse().unwrap());
        let found = ports(&headers, &query::pairs(query));
        assert_eq!(found.map_or_else(|error| error, |ports| format!("{ports:?}")), expect);
    }

    #[test]
    fn ports_are_checked_as_the_reference_does() {
        check_ports("port=80&port=443,8080", "[80, 443, 8080]");
        check_ports("", "query parameter \"port\" is required");
        check_ports("port=", "query parameter \"port\" cannot be empty");
        check_ports("port=0", "port \"0\" must be > 0");
        check_ports(
            "port=70000",
            "unable to parse \"70000\" as a port: strconv.ParseUint: parsing \"70000\": value out of range",
        );
        check_ports("port=1,x", "unable to parse \"1,x\" as a port: strconv.ParseUint: parsing \"x\": invalid syntax");
        assert_eq!(ports(&HeaderMap::new(), &[]), Ok(vec![]));
    }

    #[test]
    fn at_least_one_stream_is_wanted_and_a_terminal_has_no_error_output() {
        let read = |text: &str| wanted(&query::pairs(text));
        read("tty=1&error=1").unwrap_err();
        read("input=true").unwrap_err();
        let found = read("input=1&output=1&error=1&tty=1").unwrap();
        assert_eq!(found, Wanted { stdin: true, stdout: true, stderr: false, tty: true });
        assert!(read("error=1").unwrap().stderr);
    }
}
