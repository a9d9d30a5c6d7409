//! `cargo xtask lab`: a private containerd to try things on, until Ctrl-C.

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tests::lab::{Lab, Runtime};

use crate::install;

/// Starts a lab, says how to reach it, and removes it when asked to end.
pub(crate) fn task(args: &[String]) -> Result<()> {
    let runtime = match args.first().map(String::as_str) {
        None | Some("containerd2") => Runtime::Containerd2,
        Some("containerd1") => Runtime::Containerd1,
        Some(other) => bail!("no runtime `{other}`"),
    };
    install::tools()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    let mut lab = Lab::start(runtime)?;
    println!(
        "{}\nendpoint  {}\ncgroup    {}\naddress   {}",
        runtime.check()?,
        lab.endpoint(),
        lab.cgroup(),
        lab.address()
    );
    println!("crictl    {} -r {}\nCtrl-C removes it all", tests::tools::crictl()?.display(), lab.endpoint());
    signals.forever().next();
    clean(&mut lab)
}

/// Tears a lab down and says that nothing is left, or what is.
pub(crate) fn clean(lab: &mut Lab) -> Result<()> {
    let left = lab.teardown()?;
    if !left.is_empty() {
        bail!("left behind: {}", left.join(", "));
    }
    println!("nothing is left: no process, mount, cgroup, network namespace or interface");
    Ok(())
}
