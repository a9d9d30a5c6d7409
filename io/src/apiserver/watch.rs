//! One watch: reads the answer's lines as they come and tells each bunch as one fact, until the answer ends.

use super::transport::{CallError, Sent, Transport, collect, unavailable};
use bytes::BytesMut;
use components::edge::api::{ApiAnswer, ApiEvent, ApiIngress, ApiWatch, EventKind};
use components::edge::{FailureClass, Ingress};
use components::ids::Ticket;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Longest line, which holds one object.
const MAX_LINE: usize = 64 << 20;

/// Watches until the connection ends or nobody listens any more.
pub(super) async fn run(
    transport: &Transport,
    ticket: Ticket,
    watch: &ApiWatch,
    ingress: &mpsc::Sender<Ingress>,
) -> Result<ApiAnswer, CallError> {
    let Sent { response, closed, place: _place } = transport.watch(&watch.path).await?;
    if !response.status().is_success() {
        return Ok(ApiAnswer::Answered(Box::new(collect(response, watch.secret).await?)));
    }
    let ended = |message: &str| Ok(ApiAnswer::WatchEnded { message: message.to_owned() });
    if ingress.send(Ingress::Api(ApiIngress::WatchOpened { watch: ticket })).await.is_err() {
        return ended("nobody listens");
    }
    let mut body = response.into_body();
    let mut lines = Lines::default();
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(watch.silence, body.frame()) => next,
            () = closed.cancelled() => return ended("the credentials changed"),
        };
        let Ok(frame) = next else { return ended("nothing was heard for too long") };
        let Some(frame) = frame else { return ended("the server ended it") };
        let data = match frame {
            Ok(frame) => frame.into_data(),
            // What was told before counts; the rest is asked for again from there.
            Err(error) => return ended(&unavailable(&error).message),
        };
        let Ok(data) = data else { continue };
        let events = lines.feed(&data)?;
        if events.is_empty() {
            continue;
        }
        let told = ApiIngress::WatchEvents { watch: ticket, secret: watch.secret, events };
        if ingress.send(Ingress::Api(told)).await.is_err() {
            return ended("nobody listens");
        }
    }
}

/// Puts lines together from pieces.
#[derive(Default)]
struct Lines(BytesMut);

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Lines {
    /// Adds a piece; the events that are complete now.
    fn feed(&mut self, data: &[u8]) -> Result<Vec<ApiEvent>, CallError> {
        let searched = self.0.len();
        self.0.extend_from_slice(data);
        let mut events = Vec::new();
        let Some(last) = self.0[searched..].iter().rposition(|byte| *byte == b'\n') else {
            if self.0.len() > MAX_LINE {
                let message = format!("an event is larger than {} MiB", MAX_LINE >> 20);
                return Err(CallError { class: FailureClass::Exhausted, message });
            }
            return Ok(events);
        };
        let whole = self.0.split_to(searched + last + 1);
        for line in whole[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            events.push(event(line)?);
        }
        Ok(events)
    }
}

fn event(line: &[u8]) -> Result<ApiEvent, CallError> {
    let garbage = |message: String| CallError { class: FailureClass::Garbage, message };
    let line: Line<'_> = serde_json::from_slice(line).map_err(|e| garbage(format!("not a watch event: {e}")))?;
    let kind = match line.kind {
        "ADDED" => EventKind::Added,
        "MODIFIED" => EventKind::Modified,
        "DELETED" => EventKind::Deleted,
        "BOOKMARK" => EventKind::Bookmark,
        "ERROR" => EventKind::Error,
        other => return Err(garbage(format!("unknown kind of watch event {other:?}"))),
    };
    Ok(ApiEvent { kind, object: Arc::from(line.object.get()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"a\":\"ä\\n\"}}\n\n{\"type\":\"BOOKMARK\",\"object\":{}}\n";
        let all = Lines::default().feed(text.as_bytes()).unwrap();
        assert_eq!(all.iter().map(|e| e.kind).collect::<Vec<_>>(), [EventKind::Added, EventKind::Bookmark]);
        assert_eq!(&*all[0].object, "{\"a\":\"ä\\n\"}");
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let pieces = text.as_bytes().chunks(size).flat_map(|piece| lines.feed(piece).unwrap());
            assert_eq!(pieces.collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        for text in ["x\n", "{}\n", "{\"type\":\"X\",\"object\":{}}\n"] {
            assert_eq!(Lines::default().feed(text.as_bytes()).unwrap_err().class, FailureClass::Garbage);
        }
        let mut lines = Lines::default();
        let piece = vec![b'x'; MAX_LINE / 2 + 1];
        lines.feed(&piece).unwrap();
        assert_eq!(lines.feed(&piece).unwrap_err().class, FailureClass::Exhausted);
    }
}
