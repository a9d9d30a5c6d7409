//! What must always hold: broken, it is logged and counted in production and stops a test.

use bevy_ecs::prelude::Resource;

/// How often an invariant was found broken.
#[derive(Resource, Default, Debug)]
pub struct InvariantCount(pub u64);

/// Notes a broken invariant: logged and counted; stops the process in builds with the feature `strict`.
pub fn report_broken(count: &mut InvariantCount, message: std::fmt::Arguments<'_>) {
    count.0 += 1;
    tracing::error!("invariant broken: {message}");
    #[cfg(feature = "strict")]
    panic!("invariant broken: {message}");
}

/// Checks what must always hold: `invariant!(count, condition, "message", args…)`, with `count` a
/// `&mut InvariantCount`. Evaluates to the condition, so that the caller can take the safe way out.
#[macro_export]
macro_rules! invariant {
    ($count:expr, $condition:expr, $($message:tt)+) => {{
        let holds = $condition;
        if !holds {
            $crate::report_broken($count, format_args!($($message)+));
        }
        holds
    }};
}
