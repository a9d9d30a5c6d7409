//! A trace as one HTML page that needs nothing else: numbers, a timeline with a row per pod, and every tick in which
//! something happened, with its inputs and decisions.

use components::edge::Ingress;
use components::edge::cri::CriAnswer;
use components::edge::{Answer, Completion, Outcome};
use components::ids::PodUid;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::format::TraceError;
use crate::frame::{Frame, Line};
use crate::info::info;
use crate::reader::{Item, Reader};
use crate::story::Names;

/// Ticks that are listed: a browser stays quick up to about this many.
const TICKS: usize = 5_000;
/// Pods that have a row.
const ROWS: usize = 500;
/// Marks in the timeline.
const MARKS: usize = 50_000;
/// Width of the timeline in pixels.
const WIDTH: f64 = 1200.0;
const ROW: usize = 16;

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ticklet trace</title><style>
body{font:13px/1.5 system-ui,sans-serif;margin:24px;color:#222;background:#fff}
pre,code,li{font:12px/1.5 ui-monospace,monospace}
h1{font-size:18px}h2{font-size:15px;margin-top:28px}
ul{list-style:none;padding-left:18px;margin:2px 0}
li.in{color:#555}li.in::before{content:'\\2190 '}li.out::before{content:'\\2192 '}
.bad{color:#b00020}summary{cursor:pointer}
svg{border:1px solid #ddd}svg text{font:11px system-ui,sans-serif}
</style></head><body>
";

/// A mark in the timeline.
struct Mark {
    at: u64,
    row: usize,
    color: &'static str,
    text: String,
}

#[derive(Default)]
struct Page {
    names: Names,
    rows: BTreeMap<PodUid, usize>,
    marks: Vec<Mark>,
    span: Option<(u64, u64)>,
    ticks: String,
    shown: usize,
    hidden: usize,
}

/// Draws the trace. `verdict` is shown at the top: what a replay found, for example.
///
/// # Errors
/// When the trace cannot be opened.
pub fn page(data: &[u8], verdict: &str) -> Result<String, TraceError> {
    let info = info(data)?;
    let mut page = Page::default();
    let mut reader = Reader::open(data)?;
    let mut written = Ok(());
    while let Ok(Some(item)) = reader.next_item() {
        written = written.and_then(|()| match item {
            Item::Frame(frame) => page.frame(&frame),
            Item::Gap(gap) => {
                let (frames, after) = (gap.frames, gap.after_tick);
                writeln!(page.ticks, "<p class=\"bad\">{frames} ticks after tick {after} are missing</p>")
            }
        });
    }
    let mut out = HEAD.to_owned();
    let node = Escaped(&info.node);
    written = written.and_then(|()| {
        writeln!(out, "<h1>Trace of {node}</h1>")?;
        if !verdict.is_empty() {
            writeln!(out, "<h2>Replay</h2><pre>{}</pre>", Escaped(verdict))?;
        }
        writeln!(out, "<h2>Numbers</h2><pre>{}</pre>", Escaped(&info.to_string()))?;
        page.timeline(&mut out)?;
        writeln!(out, "<h2>Ticks</h2>{}", page.ticks)?;
        if page.hidden > 0 {
            writeln!(out, "<p>{} more ticks are not shown.</p>", page.hidden)?;
        }
        writeln!(out, "</body></html>")
    });
    written.map_err(|_| TraceError::Encode { what: "the page could not be written".to_owned() })?;
    Ok(out)
}

impl Page {
    fn frame(&mut self, frame: &Frame) -> fmt::Result {
        let at = frame.now.mono.0;
        let from = self.span.map_or(at, |(from, _)| from);
        self.span = Some((from, at));
        let lines = frame.effects.as_ref().map_or(&[][..], |effects| &effects.lines);
        let quiet = lines.iter().all(is_routine) && frame.inputs.iter().all(is_list);
        if !quiet && self.shown < TICKS {
            self.shown += 1;
            let seconds = (at - from.min(at)) as f64 / 1e9;
            let (tick, wall) = (frame.tick, frame.now.wall.rfc3339_nano());
            let (inputs, decisions) = (frame.inputs.len(), lines.len());
            write!(self.ticks, "<details><summary>tick {tick} +{seconds:.3} s {wall}: ")?;
            writeln!(self.ticks, "{inputs} in, {decisions} decided</summary><ul>")?;
            for input in &frame.inputs {
                let text = self.names.input(input);
                let class = if is_trouble(input) { "in bad" } else { "in" };
                writeln!(self.ticks, "<li class=\"{class}\">{}</li>", Escaped(&text))?;
            }
            self.names.learn(frame);
            for line in lines {
                writeln!(self.ticks, "<li class=\"out\">{}</li>", Escaped(&self.names.line(line)))?;
            }
            if frame.effects.is_none() {
                writeln!(self.ticks, "<li class=\"bad\">this tick did not end</li>")?;
            }
            writeln!(self.ticks, "</ul></details>")?;
        } else {
            self.hidden += usize::from(!quiet);
            self.names.learn(frame);
        }
        for line in lines {
            self.mark(at, line);
        }
        Ok(())
    }

    fn mark(&mut self, at: u64, line: &Line) {
        let Some(pod) = &line.pod else {
            return;
        };
        let next = self.rows.len();
        if (next >= ROWS && !self.rows.contains_key(pod)) || self.marks.len() >= MARKS {
            return;
        }
        let row = *self.rows.entry(pod.clone()).or_insert(next);
        let color = match line.label.split(' ').next().unwrap_or_default() {
            "RunSandbox" | "StartContainer" => "#1a7f37",
            "CreateContainer" | "PullImage" => "#0969da",
            "StopSandbox" | "StopContainer" => "#cf222e",
            "RemoveSandbox" | "RemoveContainer" | "CleanPod" => "#8250df",
            _ => "#8c959f",
        };
        self.marks.push(Mark { at, row, color, text: self.names.line(line) });
    }

    fn timeline(&self, out: &mut String) -> fmt::Result {
        let Some((from, to)) = self.span.filter(|_| !self.marks.is_empty()) else {
            return Ok(());
        };
        let span = (to - from.min(to)).max(1) as f64;
        let height = self.rows.len() * ROW + ROW;
        let names = 320.0;
        writeln!(out, "<h2>Pods over {:.1} s</h2>", span / 1e9)?;
        let width = WIDTH + names + 20.0;
        writeln!(out, "<svg width=\"{width}\" height=\"{height}\">")?;
        for (pod, row) in &self.rows {
            let y = row * ROW + ROW;
            let name = self.names.pod(pod);
            writeln!(out, "<text x=\"4\" y=\"{}\">{}</text>", y + 4, Escaped(&name))?;
            writeln!(out, "<path d=\"M{names} {y}h{WIDTH}\" stroke=\"#eee\"/>")?;
        }
        for mark in &self.marks {
            let x = names + (mark.at - from.min(mark.at)) as f64 / span * WIDTH;
            let y = mark.row * ROW + ROW;
            write!(out, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4\" fill=\"{}\">", mark.color)?;
            writeln!(out, "<title>{}</title></circle>", Escaped(&mark.text))?;
        }
        writeln!(out, "</svg>")
    }
}

/// What every relist brings and asks for.
fn is_routine(line: &Line) -> bool {
    line.label == "ListRuntime"
}

fn is_list(input: &Ingress) -> bool {
    matches!(
        input,
        Ingress::Completed(Completion { outcome: Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(_))), .. })
    )
}

fn is_trouble(input: &Ingress) -> bool {
    match input {
        Ingress::Completed(completion) => matches!(completion.outcome, Outcome::Failed(_) | Outcome::TimedOut),
        Ingress::Store(_) => true,
        _ => false,
    }
}

/// Text with what HTML would take for its own escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c if c.is_control() && c != '\n' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_never_markup() {
        assert_eq!(Escaped("<a href=\"x\">&\u{1b}\n").to_string(), "&lt;a href=&quot;x&quot;&gt;&amp;\u{fffd}\n");
    }
}
