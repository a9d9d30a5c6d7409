//! Log lines in the kubelet's two formats, text as klog writes it and JSON, for `tracing`.
//!
//! Reads `logging.format` and `logging.verbosity`; writes to standard error, one line and one write per event. Times
//! are UTC, so that lines of different nodes compare.

use jiff::Timestamp;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Crates whose details follow the verbosity. Libraries stay at warnings until verbosity 8, since they speak of bytes.
const OWN: [&str; 9] = ["ticklet", "io", "engine", "podspec", "systems", "components", "trace", "sim", "proto"];

/// Changes the verbosity of the process's log.
static VERBOSITY: OnceLock<Box<dyn Fn(u32) -> bool + Send + Sync>> = OnceLock::new();

/// `logging.format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// `text`.
    Text,
    /// `json`.
    Json,
}

/// Sends all events of this process to standard error.
///
/// # Errors
/// When a receiver of events was set before.
pub fn init(format: LogFormat, verbosity: u32) -> Result<(), tracing_subscriber::util::TryInitError> {
    let (filter, handle) = reload::Layer::new(targets(verbosity));
    tracing_subscriber::registry().with(writing(format, std::io::stderr).with_filter(filter)).try_init()?;
    // There is one log, so this is set once.
    let _ = VERBOSITY.set(Box::new(move |verbosity| handle.reload(targets(verbosity)).is_ok()));
    Ok(())
}

/// Changes the verbosity; false where [`init`] did not set up the log.
pub fn set_verbosity(verbosity: u32) -> bool {
    VERBOSITY.get().is_some_and(|set| set(verbosity))
}

/// The layer that writes events.
pub fn layer<S, W>(format: LogFormat, verbosity: u32, writer: W) -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    writing(format, writer).with_filter(targets(verbosity))
}

/// The same without a filter.
fn writing<S, W>(format: LogFormat, writer: W) -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let events = Klog { format, process: std::process::id() };
    tracing_subscriber::fmt::layer().event_format(events).with_writer(writer)
}

fn targets(verbosity: u32) -> Targets {
    let own = own_level(verbosity);
    let libraries = if verbosity >= 8 { own } else { LevelFilter::WARN };
    Targets::new().with_default(libraries).with_targets(OWN.map(|name| (name, own)))
}

/// Verbosity 4 is klog's usual "debug", 6 and more its "trace".
const fn own_level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4 | 5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Formats events.
struct Klog {
    format: LogFormat,
    process: u32,
}

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = match self.format {
            LogFormat::Text => text(event.metadata(), &fields, Timestamp::now(), self.process),
            LogFormat::Json => json(event.metadata(), &fields, Timestamp::now()),
        };
        writer.write_str(&line)?;
        writer.write_char('\n')
    }
}

fn text(of: &Metadata<'_>, fields: &Fields, now: Timestamp, process: u32) -> String {
    let severity = match *of.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let time = now.strftime("%m%d %H:%M:%S%.6f");
    let mut line = format!("{severity}{time} {process:>7} {}] {:?}", place(of), fields.message);
    for (name, value) in &fields.values {
        match value {
            // Quoted and escaped: a line stays a line.
            Value::String(text) => line.push_str(&format!(" {name}={text:?}")),
            other => line.push_str(&format!(" {name}={other}")),
        }
    }
    line
}

fn json(of: &Metadata<'_>, fields: &Fields, now: Timestamp) -> String {
    let mut line = Map::new();
    let millis = now.as_microsecond() as f64 / 1000.0;
    line.insert("ts".to_owned(), Value::from(millis));
    line.insert("caller".to_owned(), Value::from(place(of)));
    line.insert("msg".to_owned(), Value::from(fields.message.as_str()));
    match *of.level() {
        // klog marks errors by the absence of `v`.
        Level::ERROR => {}
        Level::DEBUG => drop(line.insert("v".to_owned(), Value::from(4))),
        Level::TRACE => drop(line.insert("v".to_owned(), Value::from(6))),
        _ => drop(line.insert("v".to_owned(), Value::from(0))),
    }
    for (name, value) in &fields.values {
        let name = if matches!(*name, "ts" | "caller" | "msg" | "v") { format!("{name}_") } else { (*name).to_owned() };
        line.insert(name, value.clone());
    }
    Value::Object(line).to_string()
}

/// `file.rs:line`.
fn place(of: &Metadata<'_>) -> String {
    let file = of.file().and_then(|path| path.rsplit('/').next()).unwrap_or("unknown");
    format!("{file}:{}", of.line().unwrap_or_default())
}

/// Message and values of an event, in order.
#[derive(Default)]
struct Fields {
    message: String,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.values.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(format: LogFormat, verbosity: u32, events: impl FnOnce()) -> Vec<String> {
        let sink = Sink::default();
        let made = sink.clone();
        let subscriber = tracing_subscriber::registry().with(layer(format, verbosity, move || made.clone()));
        tracing::subscriber::with_default(subscriber, events);
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn events() {
        tracing::info!(pod = "ns/p", count = 3, ok = true, "Started \"it\"");
        tracing::warn!(error = %"two\nlines", "Careful");
        tracing::error!("Bad");
        tracing::debug!("detail");
        tracing::trace!("more detail");
        tracing::info!(target: "hyper::proto", "library");
    }

    #[test]
    fn text_is_klogs() {
        let got = lines(LogFormat::Text, 2, events);
        let tail = |line: &str| line.split_once(".rs:").unwrap().1.split_once("] ").unwrap().1.to_owned();
        assert_eq!(got.len(), 3, "{got:?}");
        assert_eq!(tail(&got[0]), r#""Started \"it\"" pod="ns/p" count=3 ok=true"#);
        assert_eq!(tail(&got[1]), r#""Careful" error="two\nlines""#);
        assert_eq!([0, 1, 2].map(|i| &got[i][..1]), ["I", "W", "E"]);
        let shape: String = got[0].chars().take(21).map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "I9999 99:99:99.999999");
        assert!(got[0].contains(&format!(" {} klog.rs:", std::process::id())), "{}", got[0]);
    }

    #[test]
    fn verbosity_opens_details_and_then_libraries() {
        assert_eq!(lines(LogFormat::Text, 4, events).len(), 4);
        assert_eq!(lines(LogFormat::Text, 6, events).len(), 5);
        assert_eq!(lines(LogFormat::Text, 8, events).len(), 6);
    }

    #[test]
    fn json_is_one_object_a_line() {
        let got: Vec<Value> =
            lines(LogFormat::Json, 0, events).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(got[0]["msg"], "Started \"it\"");
        assert_eq!((&got[0]["pod"], &got[0]["count"], &got[0]["v"]), (&"ns/p".into(), &3.into(), &0.into()));
        assert!(got[0]["ts"].as_f64().unwrap() > 1.6e12);
        assert!(got[0]["caller"].as_str().unwrap().starts_with("klog.rs:"));
        assert_eq!(got[2].get("v"), None);
    }
}
