//! Writing metrics in the Prometheus text format 0.0.4.
//!
//! Decides only the form: families with help and type, escaped labels, cumulative histogram buckets. What is counted
//! belongs to whoever counts it; each part writes its own families here.

use std::fmt::Write;

/// Value of `Content-Type` for a written page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is said once about a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Name.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// Type.
    pub kind: MetricKind,
}

/// Type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Counts observations by upper bound.
    Histogram,
}

impl Descriptor {
    /// Describes a counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter }
    }

    /// Describes a gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Gauge }
    }

    /// Describes a histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Histogram }
    }
}

/// A histogram as it was counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Distribution<'a> {
    /// Upper bounds, ascending, without infinity.
    pub bounds: &'a [f64],
    /// Observations between each bound and the one before.
    pub buckets: &'a [u64],
    /// Observations in all.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

/// A page being written. Families come in any order, each only once.
#[derive(Clone, Default, Debug)]
pub struct Exposition {
    text: String,
}

/// Labels of a sample: (name, value).
pub type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// Writes a family with one sample that has no labels.
    pub fn single(&mut self, descriptor: Descriptor, value: f64) {
        self.family(descriptor).sample(&[], value);
    }

    /// Begins a family; its samples follow.
    pub fn family(&mut self, descriptor: Descriptor) -> Family<'_> {
        let kind = match descriptor.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.push(format_args!("# HELP {} ", descriptor.name));
        escape(&mut self.text, descriptor.help, false);
        self.push(format_args!("\n# TYPE {} {kind}\n", descriptor.name));
        Family { name: descriptor.name, page: self }
    }

    /// The page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _: std::fmt::Result = self.text.write_fmt(text);
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &Labels<'_>, bound: Option<&str>, value: f64) {
        self.begin(name, suffix, labels, bound, value);
        self.text.push('\n');
    }

    fn begin(&mut self, name: &str, suffix: &str, labels: &Labels<'_>, bound: Option<&str>, value: f64) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut open = '{';
        for (label, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            self.push(format_args!("{open}{label}=\""));
            escape(&mut self.text, value, true);
            self.text.push('"');
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
        self.text.push(' ');
        self.number(value);
    }

    fn number(&mut self, value: f64) {
        if value.is_nan() {
            self.text.push_str("NaN");
        } else if value.is_infinite() {
            self.text.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        } else {
            self.push(format_args!("{value}"));
        }
    }
}

/// A bound as clients of the reference print it: from a million on with an exponent.
fn bound_text(bound: f64) -> String {
    if bound < 1e6 {
        return bound.to_string();
    }
    let text = format!("{bound:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{digits}e+{exponent:0>2}"),
        None => text,
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    name: &'static str,
    page: &'a mut Exposition,
}

impl Family<'_> {
    /// Writes one sample.
    pub fn sample(&mut self, labels: &Labels<'_>, value: f64) -> &mut Self {
        self.page.line(self.name, "", labels, None, value);
        self
    }

    /// Writes one sample with the time, in milliseconds since 1970, at which it was taken.
    pub fn sample_at(&mut self, labels: &Labels<'_>, value: f64, millis: i64) -> &mut Self {
        self.page.begin(self.name, "", labels, None, value);
        self.page.push(format_args!(" {millis}\n"));
        self
    }

    /// Writes one histogram.
    pub fn histogram(&mut self, labels: &Labels<'_>, seen: Distribution<'_>) -> &mut Self {
        let mut below = 0;
        for (bound, count) in seen.bounds.iter().zip(seen.buckets) {
            below += count;
            self.page.line(self.name, "_bucket", labels, Some(&bound_text(*bound)), as_f64(below));
        }
        self.page.line(self.name, "_bucket", labels, Some("+Inf"), as_f64(seen.count));
        self.page.line(self.name, "_sum", labels, None, seen.sum);
        self.page.line(self.name, "_count", labels, None, as_f64(seen.count));
        self
    }
}

/// A count as the format's number; exact up to 2^53.
#[must_use]
pub const fn as_f64(count: u64) -> f64 {
    count as f64
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl Fn(&mut Exposition), expect: &str) {
        let mut page = Exposition::default();
        write(&mut page);
        assert_eq!(page.into_text(), expect);
    }

    #[test]
    fn samples_have_help_type_and_escaped_labels() {
        check(
            |page| page.single(Descriptor::gauge("g", "Half\na \\ \"q\"."), 0.5),
            "# HELP g Half\\na \\\\ \"q\".\n# TYPE g gauge\ng 0.5\n",
        );
        check(
            |page| {
                page.family(Descriptor::counter("c_total", "C."))
                    .sample(&[("a", "x\"y\\z\n"), ("b", "ü")], 3.0)
                    .sample(&[("a", "")], 1e9);
            },
            "# HELP c_total C.\n# TYPE c_total counter\nc_total{a=\"x\\\"y\\\\z\\n\",b=\"ü\"} 3\nc_total{a=\"\"} 1000000000\n",
        );
        check(
            |page| {
                let mut family = page.family(Descriptor::gauge("n", "N."));
                for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.25] {
                    family.sample(&[], value);
                }
            },
            "# HELP n N.\n# TYPE n gauge\nn NaN\nn +Inf\nn -Inf\nn -0.25\n",
        );
    }

    #[test]
    fn large_bounds_have_an_exponent() {
        let shown = [0.005, 1.0, 262_144.0, 1_048_576.0, 16_777_216.0].map(bound_text);
        assert_eq!(shown, ["0.005", "1", "262144", "1.048576e+06", "1.6777216e+07"]);
    }

    #[test]
    fn histograms_are_cumulative() {
        let seen = Distribution { bounds: &[0.005, 1.0], buckets: &[2, 3], count: 6, sum: 7.5 };
        check(
            |page| {
                page.family(Descriptor::histogram("h", "H.")).histogram(&[("op", "x")], seen);
            },
            "# HELP h H.\n# TYPE h histogram\nh_bucket{op=\"x\",le=\"0.005\"} 2\nh_bucket{op=\"x\",le=\"1\"} 5\n\
             h_bucket{op=\"x\",le=\"+Inf\"} 6\nh_sum{op=\"x\"} 7.5\nh_count{op=\"x\"} 6\n",
        );
    }
}
