//! `/debug/pprof/` and `/debug/flags/v`: what a debugger may ask of this process and change of it.
//!
//! Profiles of the Go runtime do not exist here; they are refused by name. Reads the command line; sets the verbosity of
//! the log.

use super::body::{Body, TEXT, response};
use crate::klog;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

/// Where profiles lie.
const PROFILES: &str = "/debug/pprof/";
/// What the Go runtime has and this process has not.
const OF_GO: [&str; 8] = ["allocs", "block", "goroutine", "heap", "mutex", "profile", "threadcreate", "trace"];
/// Longest body that is read.
const MAX_BODY: usize = 64;

const INDEX: &str = "<html>
<head>
<title>/debug/pprof/</title>
</head>
<body>
/debug/pprof/<br>
<br>
<a href=\"cmdline\">cmdline</a><br>
<br>
This is no Go program, so it has no profiles of the Go runtime. Its traces tell what was decided and when.
</body>
</html>
";

/// Answers a request for a profile.
pub(super) fn profile(path: &str) -> Response<Body> {
    match path.strip_prefix(PROFILES).unwrap_or_default() {
        "" => response(StatusCode::OK, "text/html; charset=utf-8", INDEX),
        "cmdline" => {
            let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
            response(StatusCode::OK, TEXT, args.join("\0"))
        }
        // Tools ask for it before they send addresses: there are none to look up.
        "symbol" => response(StatusCode::OK, TEXT, "num_symbols: 0\n"),
        name if OF_GO.contains(&name) => {
            let text = format!("{name} is a profile of the Go runtime, and this is no Go program\n");
            response(StatusCode::NOT_IMPLEMENTED, TEXT, text)
        }
        _ => response(StatusCode::NOT_FOUND, TEXT, "Unknown profile\n"),
    }
}

/// Sets the verbosity to the number in the body.
pub(super) async fn set_verbosity(request: Request<Incoming>) -> Response<Body> {
    if request.method() != Method::PUT {
        return response(StatusCode::NOT_ACCEPTABLE, TEXT, "unsupported http method");
    }
    let text = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => return response(StatusCode::BAD_REQUEST, TEXT, format!("error reading request body: {error}")),
    };
    let Ok(verbosity) = text.parse() else {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        return response(StatusCode::BAD_REQUEST, TEXT, why);
    };
    if !klog::set_verbosity(verbosity) {
        let why = format!("failed set klog.logging.verbosity {verbosity}: the log of this process is not its own");
        return response(StatusCode::BAD_REQUEST, TEXT, why);
    }
    response(StatusCode::OK, TEXT, format!("successfully set klog.logging.verbosity to {verbosity}"))
}
