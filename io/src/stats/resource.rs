//! The page `/metrics/resource`, which metrics-server reads. Pure.

use super::picture::{ContainerPicture, Measured, Picture, PodPicture};
use super::sample::Sample;
use crate::metrics::{Descriptor, Exposition, Labels, as_f64};

/// Writes the page; without a picture only that something is wrong.
pub(super) fn page(picture: Option<&Picture>) -> String {
    let mut page = Exposition::default();
    if let Some(picture) = picture {
        containers(picture, &mut page);
        node(&picture.root, &mut page);
        pods(picture, &mut page);
    }
    let failed = if picture.is_some() { 0.0 } else { 1.0 };
    page.single(Descriptor::gauge("resource_scrape_error", "1 when usage could not be read, else 0."), failed);
    page.into_text()
}

type Value = fn(&Sample) -> Option<f64>;

fn cpu_seconds(sample: &Sample) -> Option<f64> {
    sample.cpu.as_ref().map(|cpu| as_f64(cpu.usage) / 1e9)
}

fn working_set(sample: &Sample) -> Option<f64> {
    sample.memory.as_ref().map(|memory| as_f64(memory.working_set()))
}

fn swap(sample: &Sample) -> Option<f64> {
    sample.memory.as_ref().map(|memory| as_f64(memory.swap))
}

/// What may be swapped as the kubelet counts it: what is free and what is used.
fn swap_limit(sample: &Sample) -> Option<f64> {
    let memory = sample.memory.as_ref()?;
    memory.swap_limit.map(|limit| as_f64(limit.max(memory.swap)))
}

fn millis(sample: &Sample) -> i64 {
    sample.wall.0 / 1_000_000
}

fn containers(picture: &Picture, page: &mut Exposition) {
    let all = || picture.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let mut write = |descriptor: Descriptor, value: Value| {
        let mut family = page.family(descriptor);
        for (pod, container) in all() {
            let sample = &container.used.sample;
            if let Some(value) = value(sample) {
                family.sample_at(&labels(pod, container), value, millis(sample));
            }
        }
    };
    let help = "CPU time that the container spent, in seconds.";
    write(Descriptor::counter("container_cpu_usage_seconds_total", help), cpu_seconds);
    let help = "Memory of the container that can't be had back without harm, in bytes.";
    write(Descriptor::gauge("container_memory_working_set_bytes", help), working_set);
    let help = "Memory of the container that may be swapped out, in bytes.";
    write(Descriptor::gauge("container_swap_limit_bytes", help), swap_limit);
    let help = "Memory of the container that is swapped out, in bytes.";
    write(Descriptor::gauge("container_swap_usage_bytes", help), swap);
    let help = "Start of the container, in seconds since 1970.";
    let mut family = page.family(Descriptor::gauge("container_start_time_seconds", help));
    for (pod, container) in all().filter(|(_, container)| container.started.0 > 0) {
        family.sample(&labels(pod, container), container.started.0 as f64 / 1e9);
    }
}

fn labels<'a>(pod: &'a PodPicture, container: &'a ContainerPicture) -> [(&'a str, &'a str); 3] {
    [("container", &*container.name), ("namespace", &*pod.view.namespace), ("pod", &*pod.view.name)]
}

fn node(root: &Measured, page: &mut Exposition) {
    let families: [(Descriptor, Value); 3] = [
        (Descriptor::counter("node_cpu_usage_seconds_total", "CPU time that the node spent, in seconds."), cpu_seconds),
        (
            Descriptor::gauge(
                "node_memory_working_set_bytes",
                "Memory of the node that can't be had back without harm, in bytes.",
            ),
            working_set,
        ),
        (Descriptor::gauge("node_swap_usage_bytes", "Memory of the node that is swapped out, in bytes."), swap),
    ];
    for (descriptor, value) in families {
        if let Some(value) = value(&root.sample) {
            page.family(descriptor).sample_at(&[], value, millis(&root.sample));
        }
    }
}

fn pods(picture: &Picture, page: &mut Exposition) {
    let families: [(Descriptor, Value); 3] = [
        (Descriptor::counter("pod_cpu_usage_seconds_total", "CPU time that the pod spent, in seconds."), cpu_seconds),
        (
            Descriptor::gauge(
                "pod_memory_working_set_bytes",
                "Memory of the pod that can't be had back without harm, in bytes.",
            ),
            working_set,
        ),
        (Descriptor::gauge("pod_swap_usage_bytes", "Memory of the pod that is swapped out, in bytes."), swap),
    ];
    for (descriptor, value) in families {
        let mut family = page.family(descriptor);
        for pod in &picture.pods {
            let Some(own) = &pod.own else { continue };
            let labels: &Labels<'_> = &[("namespace", &pod.view.namespace), ("pod", &pod.view.name)];
            if let Some(value) = value(&own.sample) {
                family.sample_at(labels, value, millis(&own.sample));
            }
        }
    }
}
