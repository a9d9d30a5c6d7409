//! Families of the machine.

use crate::metrics::{Descriptor, Exposition, as_f64};
use crate::stats::machine::Machine;

/// Writes which kernel and system it is.
pub(super) fn version(machine: &Machine, page: &mut Exposition) {
    let help = "Kernel and operating system; the value is always 1.";
    page.family(Descriptor::gauge("cadvisor_version_info", help)).sample(
        &[
            ("cadvisorRevision", ""),
            ("cadvisorVersion", ""),
            ("dockerVersion", ""),
            ("kernelVersion", &machine.kernel),
            ("osVersion", &machine.os),
        ],
        1.0,
    );
}

/// Writes what it has.
pub(super) fn write(machine: &Machine, page: &mut Exposition) {
    let labels = [
        ("boot_id", machine.boot_id.as_str()),
        ("machine_id", machine.machine_id.as_str()),
        ("system_uuid", machine.system_uuid.as_str()),
    ];
    for (name, help, value) in [
        ("machine_cpu_cores", "Processors that run threads.", machine.cores),
        ("machine_cpu_physical_cores", "Cores.", machine.physical_cores),
        ("machine_cpu_sockets", "Sockets.", machine.sockets),
        ("machine_memory_bytes", "Memory in bytes.", machine.memory_bytes),
        ("machine_swap_bytes", "Swap in bytes.", machine.swap_bytes),
    ] {
        page.family(Descriptor::gauge(name, help)).sample(&labels, as_f64(value));
    }
    page.single(Descriptor::gauge("machine_scrape_error", "1 when the machine could not be read, else 0."), 0.0);
}
