//! Numbers of the node's certificates, for metrics.

use crate::histogram::count_in;
use crate::time::Wall;

/// Upper bounds of the ages at which certificates were replaced, in seconds; those of the kubelet.
pub const ROTATION_BOUNDS: [f64; 10] =
    [60.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0, 15_552_000.0, 31_104_000.0, 124_416_000.0];

/// Both kinds of certificate; `None` for one that is not asked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Certificates {
    /// Shown to the API server.
    pub client: Option<CertificateNumbers>,
    /// Shown to those who connect.
    pub serving: Option<CertificateNumbers>,
}

/// Numbers of one kind.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CertificateNumbers {
    /// When the one in use ends; `None` while there is none.
    pub not_after: Option<Wall>,
    /// Attempts to get a new one that failed.
    pub renew_errors: u64,
    /// Replaced ones between each bound of [`ROTATION_BOUNDS`] and the one before.
    pub rotations: [u64; ROTATION_BOUNDS.len()],
    /// Replaced ones in all.
    pub count: u64,
    /// Sum of their ages in seconds.
    pub seconds: f64,
}

impl CertificateNumbers {
    /// One was replaced at this age.
    pub fn replaced(&mut self, seconds: f64) {
        count_in(&mut self.rotations, &ROTATION_BOUNDS, seconds);
        self.count += 1;
        self.seconds += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_once() {
        let mut numbers = CertificateNumbers::default();
        for seconds in [1.0, 60.0, 61.0, 1e9] {
            numbers.replaced(seconds);
        }
        assert_eq!((numbers.rotations[0], numbers.rotations[1], numbers.count), (2, 1, 4));
        assert_eq!(numbers.rotations.iter().sum::<u64>(), 3);
    }
}
