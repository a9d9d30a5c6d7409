//! What one rotation does to the files of a log. Matches upstream's container log manager: leftovers go, the oldest
//! beyond the bound go, what was rotated before is compressed, then the log itself is renamed.

use components::time::Wall;

/// What is done, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub(super) remove: Vec<String>,
    pub(super) compress: Vec<String>,
    pub(super) rename_to: String,
}

/// Plans the rotation of the log `name`, given the sorted names of the files beside it.
pub(super) fn plan(name: &str, rotated: &[String], max_files: u32, now: Wall) -> Plan {
    let in_use = |file: &&String| {
        let packed_too = || rotated.binary_search(&format!("{file}.gz")).is_ok();
        !file.ends_with(".tmp") && (file.ends_with(".gz") || !packed_too())
    };
    let mut remove: Vec<String> = rotated.iter().filter(|file| !in_use(file)).cloned().collect();
    let kept: Vec<&String> = rotated.iter().filter(in_use).collect();
    // The renamed log and the new one come on top.
    let room = usize::try_from(max_files.saturating_sub(2)).unwrap_or(usize::MAX);
    let (excess, kept) = kept.split_at(kept.len().saturating_sub(room));
    remove.extend(excess.iter().map(|file| (*file).clone()));
    let compress = kept.iter().filter(|file| !file.ends_with(".gz")).map(|file| (*file).clone()).collect();
    Plan { remove, compress, rename_to: format!("{name}.{}", suffix(name, rotated, now).compact()) }
}

/// The time in the new name. The names' order is the files' order, also after the wall clock was set back.
fn suffix(name: &str, rotated: &[String], now: Wall) -> Wall {
    let time = |file: &String| {
        let rest = file.strip_prefix(name)?.strip_prefix('.')?;
        Wall::from_compact(rest.split('.').next().unwrap_or(rest))
    };
    let newest = rotated.iter().filter_map(time).max();
    newest.map_or(now, |newest| now.max(Wall(newest.0.saturating_add(1_000_000_000))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "20261129-220000";

    /// `FILES => removed | compressed | new name`, suffixes only.
    #[track_caller]
    fn check(files: &str, max_files: u32, expect: &str) {
        let mut rotated: Vec<String> = files.split_whitespace().map(|file| format!("0.log.{file}")).collect();
        rotated.sort();
        let plan = plan("0.log", &rotated, max_files, Wall::from_compact(NOW).unwrap());
        let short =
            |files: &[String]| files.iter().map(|file| file.trim_start_matches("0.log.")).collect::<Vec<_>>().join(" ");
        let found = format!("{} | {} | {}", short(&plan.remove), short(&plan.compress), short(&[plan.rename_to]));
        assert_eq!(found, expect);
    }

    #[test]
    fn a_first_rotation_only_renames() {
        check("", 5, " |  | 20261129-220000");
        check("", 2, " |  | 20261129-220000");
    }

    #[test]
    fn what_was_rotated_before_is_compressed_and_the_oldest_go() {
        check("20261129-215900", 5, " | 20261129-215900 | 20261129-220000");
        check("20261129-215800.gz 20261129-215900", 3, "20261129-215800.gz | 20261129-215900 | 20261129-220000");
        check("20261129-215800.gz 20261129-215900", 2, "20261129-215800.gz 20261129-215900 |  | 20261129-220000");
    }

    #[test]
    fn leftovers_of_a_broken_rotation_go() {
        check(
            "20261129-215800.tmp 20261129-215900 20261129-215900.gz",
            5,
            "20261129-215800.tmp 20261129-215900 |  | 20261129-220000",
        );
    }

    #[test]
    fn names_stay_in_order_when_the_clock_is_set_back() {
        check("20261129-230000", 5, " | 20261129-230000 | 20261129-230001");
        check("20261129-235959.gz strange", 5, " | strange | 20261130-000000");
    }
}
