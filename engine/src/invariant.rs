//! What must always hold: broken, it is logged and counted in production and stops a test.

use bevy_ecs::prelude::Resource;

/// How often an invariant was found broken.
#[derive(Resource, Default, Debug)]
pub struct InvariantCount(pub u64);

/// Checks what must always hold: `invariant!(count, condition, "message", args…)`, with `count` a
/// `&mut InvariantCount`. Evaluates to the condition, so that the caller can take the safe way out.
#[macro_export]
macro_rules! invariant {
    ($count:expr, $condition:expr, $($message:tt)+) => {{
        let holds = $condition;
        if !holds {
            let count: &mut $crate::InvariantCount = $count;
            count.0 += 1;
            ::tracing::error!("invariant broken: {}", format_args!($($message)+));
            if cfg!(test) || cfg!(feature = "strict") {
                panic!("invariant broken: {}", format_args!($($message)+));
            }
        }
        holds
    }};
}
