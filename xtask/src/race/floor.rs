//! What probes cost at the least on this machine: a plain loop that connects, asks, reads and closes, as often a second as
//! the racers' probes, and nothing else. Whatever a kubelet does, it does this too.
//!
//! How many connections are made in a row matters more than anything around them: each time it rests and goes on, the
//! thread and the target's wake a core.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

use super::targets::Targets;

/// Long enough for a steady figure.
const TIME: Duration = Duration::from_secs(15);
const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: kube-probe/1.37\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// Lines for the end of a race with so many probes a second, half of them over HTTP.
pub(super) fn lines(per_second: usize) -> Result<Vec<String>> {
    let mut out = vec![format!("\nbare connections, {per_second} a second, by a plain loop")];
    for batch in [1, 25, 250] {
        let percent = cpu(per_second, batch)?;
        out.push(format!("{batch:>6} in a row: {percent:.2} % of one core"));
    }
    Ok(out)
}

/// Percent of a core that so many connections a second cost when so many are made in a row.
fn cpu(per_second: usize, batch: usize) -> Result<f64> {
    let targets = Targets::start()?;
    let period = Duration::from_secs_f64(batch as f64 / per_second as f64);
    let (began, before) = (Instant::now(), on_core()?);
    let (mut next, mut made) = (began, 0);
    while began.elapsed() < TIME {
        ask(targets.port, batch, made % 2)?;
        made += batch;
        next += period;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let used = on_core()?.saturating_sub(before);
    Ok(used.as_secs_f64() * 100.0 / began.elapsed().as_secs_f64())
}

/// All are connected; every other one, from this one on, asks and is read to its end, the rest are closed at once.
fn ask(port: u16, batch: usize, from: usize) -> Result<()> {
    let mut asking = Vec::with_capacity(batch);
    for index in 0..batch {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("the target cannot be reached")?;
        if index % 2 == from {
            stream.write_all(REQUEST)?;
            asking.push(stream);
        }
    }
    let mut answer = [0; 2048];
    for mut stream in asking {
        while stream.read(&mut answer)? > 0 {}
    }
    Ok(())
}

/// Time that this thread has been on a core.
fn on_core() -> Result<Duration> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("the thread's clock cannot be read")?;
    Ok(used.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_connection_asks() {
        let targets = Targets::start().unwrap();
        ask(targets.port, 5, 0).unwrap();
        ask(targets.port, 1, 5 % 2).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while targets.answered() != (3, 3) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(targets.answered(), (3, 3));
    }

    #[test]
    fn time_on_the_core_grows() {
        let before = on_core().unwrap();
        let mut sum = 0_u64;
        while on_core().unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(on_core().unwrap() > before);
    }
}
