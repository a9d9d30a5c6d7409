//! What a running container has of CPU and memory, where that is not what is allocated to it (contract 4).

use crate::admission;
use crate::runtime::{pod_requirements, shares as shares_of};
use components::edge::cri::{ContainerState, ContainerStatus, RuntimeSize};
use components::resize::Size;
use components::spec::{ContainerSpec, PodSpec, ResourceRequirements, Resources};
use components::status::{ActualSize, WholeResources};
use components::world::PodLimits;

/// Least shares and quota of the kernel: what lies at or below stands for what is allocated.
const LEAST_REQUEST: i64 = 2;
const LEAST_LIMIT: i64 = 10;

/// What differs, of an instance for which `in_force` was asked of the runtime.
pub(super) fn actual(
    spec: &PodSpec,
    container: &ContainerSpec,
    newest: &ContainerStatus,
    in_force: Option<Size>,
) -> Option<ActualSize> {
    if newest.state != ContainerState::Running {
        return None;
    }
    let own = &container.resources;
    let has = match newest.size {
        Some(said) => seen(said, in_force),
        // The runtime does not say: what was asked of it is in force.
        None => asked(in_force.filter(|size| *size != Size::of(own, spec.resources.as_ref()))?),
    };
    let differs = |has: Option<i64>, allocated: Option<i64>, least: i64| {
        let allocated = allocated.unwrap_or(0);
        has.filter(|has| *has != allocated && (*has > least || allocated > least))
    };
    // A list that is not there at all is not made up.
    let (requests, limits) = (is_set(&own.requests), is_set(&own.limits));
    let out = ActualSize {
        cpu_request: differs(has.cpu_request, own.requests.cpu_milli, LEAST_REQUEST).filter(|_| requests),
        cpu_limit: differs(has.cpu_limit, own.limits.cpu_milli, LEAST_LIMIT).filter(|_| limits),
        memory_request: differs(has.memory_request, own.requests.memory_bytes, 0).filter(|_| requests),
        memory_limit: differs(has.memory_limit, own.limits.memory_bytes, 0).filter(|_| limits),
    };
    (out != ActualSize::default()).then_some(out)
}

/// Resources of the pod as a whole: what its cgroup has where the pod runs, else what is allocated.
pub(super) fn whole(spec: &PodSpec, runs: bool, limits: PodLimits, period: i64) -> WholeResources {
    let allocated = admission::requested(spec);
    if !runs {
        let limits = Resources { hugepages: Default::default(), ..pod_requirements(spec).limits };
        let resources = ResourceRequirements { requests: allocated.clone(), limits };
        return WholeResources { allocated, resources };
    }
    let mut resources = spec.resources.clone().unwrap_or_default();
    let own = resources.requests.cpu_milli.unwrap_or(0);
    let read = limits.shares.and_then(|shares| i64::try_from(shares).ok()).filter(|shares| *shares != shares_of(own));
    let request = read.map(milli).filter(|milli| *milli > LEAST_REQUEST || own > LEAST_REQUEST);
    resources.requests.cpu_milli = request.or(resources.requests.cpu_milli);
    resources.requests.memory_bytes = resources.requests.memory_bytes.or(allocated.memory_bytes);
    let own = resources.limits.cpu_milli.unwrap_or(0);
    let limit = limits.quota.filter(|_| period > 0).map(|quota| quota.saturating_mul(1000) / period);
    let limit = limit.filter(|milli| *milli > LEAST_LIMIT || own > LEAST_LIMIT);
    resources.limits.cpu_milli = limit.or(resources.limits.cpu_milli);
    resources.limits.memory_bytes = limits.memory.or(resources.limits.memory_bytes);
    WholeResources { allocated, resources }
}

/// Thousandths of a core that shares stand for, rounded up.
const fn milli(shares: i64) -> i64 {
    shares.saturating_mul(1000).saturating_add(1023) / 1024
}

fn is_set(list: &Resources) -> bool {
    *list != Resources::default()
}

/// What the runtime says; it knows nothing of requested memory.
fn seen(said: RuntimeSize, in_force: Option<Size>) -> ActualSize {
    let positive = |value: i64| Some(value).filter(|value| *value > 0);
    let quota = positive(said.cpu_period).map(|period| said.cpu_quota.saturating_mul(1000) / period);
    let request = (said.cpu_shares >= LEAST_REQUEST).then(|| milli(said.cpu_shares));
    ActualSize {
        cpu_request: request,
        cpu_limit: quota.filter(|milli| *milli > 0),
        memory_request: in_force.and_then(|size| positive(size.memory_request)),
        memory_limit: positive(said.memory_limit_bytes),
    }
}

fn asked(size: Size) -> ActualSize {
    ActualSize {
        cpu_request: Some(size.cpu_request),
        cpu_limit: Some(size.cpu_limit),
        memory_request: Some(size.memory_request),
        memory_limit: Some(size.memory_limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn check(allocated: [i64; 4], said: Option<[i64; 3]>, in_force: Option<Size>, expect: Option<ActualSize>) {
        let spec_of = |cpu: i64, memory: i64| Resources {
            cpu_milli: Some(cpu).filter(|n| *n > 0),
            memory_bytes: Some(memory).filter(|n| *n > 0),
            ..Resources::default()
        };
        let mut spec = fixtures::spec("always a");
        spec.containers[0].resources.requests = spec_of(allocated[0], allocated[2]);
        spec.containers[0].resources.limits = spec_of(allocated[1], allocated[3]);
        let mut seen = fixtures::inspection(&spec, "s0+ a0:run");
        seen.containers[0].size = said.map(|[cpu_shares, cpu_quota, memory_limit_bytes]| RuntimeSize {
            cpu_period: 100_000,
            cpu_quota,
            cpu_shares,
            memory_limit_bytes,
        });
        assert_eq!(actual(&spec, &spec.containers[0], &seen.containers[0], in_force), expect);
    }

    #[test]
    fn only_what_differs_is_said() {
        check([100, 200, 64, 128], Some([102, 20_000, 128]), None, None);
        let other = ActualSize { cpu_limit: Some(300), memory_limit: Some(256), ..ActualSize::default() };
        check([100, 200, 64, 128], Some([102, 30_000, 256]), None, Some(other));
        let request = ActualSize { cpu_request: Some(200), ..ActualSize::default() };
        check([100, 200, 64, 128], Some([204, 20_000, 128]), None, Some(request));
    }

    #[test]
    fn what_the_kernel_cannot_express_stands_for_what_is_allocated() {
        check([1, 5, 0, 0], Some([2, 1000, 0]), None, None);
        check([0, 0, 0, 0], Some([2, 0, 0]), None, None);
        // No list of limits: none is made up.
        check([100, 0, 0, 0], Some([102, 30_000, 0]), None, None);
    }

    #[test]
    fn what_was_asked_for_counts_where_the_runtime_says_nothing() {
        let size = Size { cpu_request: 100, cpu_limit: 200, memory_request: 64, memory_limit: 128 };
        check([100, 200, 64, 128], None, Some(size), None);
        check([100, 200, 64, 128], None, None, None);
        let old = Size { memory_request: 32, ..size };
        let differs = ActualSize { memory_request: Some(32), ..ActualSize::default() };
        check([100, 200, 64, 128], None, Some(old), Some(differs));
        check([100, 200, 64, 128], Some([102, 20_000, 128]), Some(old), Some(differs));
    }

    #[test]
    fn the_pod_as_a_whole_has_what_its_cgroup_has() {
        let list = |cpu, memory| Resources { cpu_milli: Some(cpu), memory_bytes: Some(memory), ..Resources::default() };
        let mut spec = fixtures::spec("always a");
        let none = PodLimits { shares: Some(2), ..PodLimits::default() };
        assert_eq!(whole(&spec, true, none, 100_000), WholeResources::default());
        spec.containers[0].resources.requests = list(100, 16 << 20);
        spec.containers[0].resources.limits = list(250, 64 << 20);
        let limits = PodLimits { shares: Some(102), quota: Some(25_000), memory: Some(64 << 20) };
        let resources = spec.containers[0].resources.clone();
        let expect = WholeResources { allocated: list(100, 16 << 20), resources };
        assert_eq!(whole(&spec, true, limits, 100_000), expect);
        assert_eq!(whole(&spec, false, none, 100_000), expect);
        spec.resources =
            Some(ResourceRequirements { requests: list(1000, 1 << 30), ..ResourceRequirements::default() });
        let shown = whole(&spec, true, PodLimits { shares: Some(1024), ..none }, 100_000);
        assert_eq!(shown.resources.requests, list(1000, 1 << 30));
        assert_eq!(shown.allocated, list(1000, 1 << 30));
    }
}
