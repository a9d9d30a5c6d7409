//! Families of `/metrics` about certificates: the node's, where they are asked for, and those of pods.

use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use components::certificates::{CertificateNumbers, Certificates, ROTATION_BOUNDS};
use components::podcerts::CertificateStates;
use components::time::Wall;

/// Writes the families.
pub(super) fn write(certificates: &Certificates, now: Wall, page: &mut Exposition) {
    if let Some(client) = &certificates.client {
        let help = "Seconds until the client certificate ends; +Inf without a valid one.";
        page.single(Descriptor::gauge("kubelet_certificate_manager_client_ttl_seconds", help), ttl(client, now));
        let name = "kubelet_certificate_manager_client_expiration_renew_errors";
        page.single(Descriptor::counter(name, "Failed renewals."), as_f64(client.renew_errors));
    }
    if let Some(serving) = &certificates.serving {
        let help = "Seconds until the serving certificate ends; +Inf without a valid one.";
        page.single(Descriptor::gauge("kubelet_certificate_manager_server_ttl_seconds", help), ttl(serving, now));
        let name = "kubelet_server_expiration_renew_errors";
        page.single(Descriptor::counter(name, "Failed renewals."), as_f64(serving.renew_errors));
        let name = "kubelet_certificate_manager_server_rotation_seconds";
        let help = "Seconds that certificates lived before they were replaced.";
        let (buckets, count, sum) = (serving.rotations.as_slice(), serving.count, serving.seconds);
        let ages = Distribution { bounds: &ROTATION_BOUNDS, buckets, count, sum };
        page.family(Descriptor::histogram(name, help)).histogram(&[], ages);
    }
}

/// Writes the family about certificates of pods.
pub(super) fn write_states(states: &CertificateStates, page: &mut Exposition) {
    if states.is_empty() {
        return;
    }
    let help = "Certificates that volumes of pods hold, by signer and state.";
    let mut family = page.family(Descriptor::gauge("kubelet_podcertificate_states", help));
    for ((signer, state), count) in states {
        family.sample(&[("signer_name", signer), ("state", state)], as_f64(*count));
    }
}

fn ttl(numbers: &CertificateNumbers, now: Wall) -> f64 {
    match numbers.not_after {
        Some(end) if end >= now => ((end.0 - now.0) as f64 / 1e9).trunc(),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_left_is_told_and_no_certificate_is_endless() {
        let mut serving = CertificateNumbers { not_after: Some(Wall(9_700_000_000)), ..Default::default() };
        serving.replaced(90.0);
        let all = Certificates {
            client: Some(CertificateNumbers { not_after: Some(Wall(1)), renew_errors: 3, ..Default::default() }),
            serving: Some(serving),
        };
        let mut page = Exposition::default();
        write(&all, Wall(2_000_000_000), &mut page);
        let text = page.into_text();
        for line in [
            "kubelet_certificate_manager_client_ttl_seconds +Inf",
            "kubelet_certificate_manager_client_expiration_renew_errors 3",
            "kubelet_certificate_manager_server_ttl_seconds 7",
            "kubelet_server_expiration_renew_errors 0",
            "kubelet_certificate_manager_server_rotation_seconds_bucket{le=\"60\"} 0",
            "kubelet_certificate_manager_server_rotation_seconds_bucket{le=\"3600\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
        let mut page = Exposition::default();
        write(&Certificates::default(), Wall(0), &mut page);
        assert_eq!(page.into_text(), "");
    }
}
