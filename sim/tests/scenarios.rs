//! Every scenario file is one test: pods, faults and virtual time in, effects, status and order out.

use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

#[track_caller]
fn check(name: &str) {
    let text = std::fs::read_to_string(directory().join(format!("{name}.scn"))).expect("the scenario file can be read");
    if let Err(report) = sim::scenario::run(&text, systems::plugin) {
        panic!("scenario {name}\n{report}");
    }
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_file_is_played() {
            let mut files: Vec<String> = std::fs::read_dir(directory())
                .unwrap()
                .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

scenarios! {
    active_deadline
    active_deadline_restart
    api_clock_skew
    api_critical
    api_ephemeral
    api_gates
    api_grace
    api_mirror
    api_not_run
    api_not_taken
    api_outage
    api_pages
    api_pod
    api_refused
    api_relist
    api_replaced
    api_restart
    api_retry_after
    api_runtime_class
    api_updates
    clock_steps
    commit_fails
    container_half_made
    crash_at_commit
    crash_loop
    crash_loop_cap
    crash_loop_reset
    crash_while_ending
    drain
    env_file
    events_at_start
    events_bare
    events_closed
    events_lost
    file_back_at_once
    file_back_crash
    file_back_never
    file_back_unseen
    gc_keeps_per_container
    gc_old_sandbox
    gc_remains
    grace_shrinks
    host_path_missing
    image_missing
    image_never
    image_pull_recovers
    image_volume
    init_fails
    init_fails_never
    init_not_again
    init_order
    log_clock_back
    log_rotation
    log_rotation_fails
    lost_stop
    many_at_once
    network_not_ready
    never_fails
    never_succeeds
    object_bundle
    object_certificate
    object_env
    object_immutable
    object_outage
    object_token
    object_volume
    orphans_wait
    post_start
    post_start_fails
    post_start_hangs
    pre_stop
    pre_stop_hangs
    pre_stop_of_a_sidecar
    probe_agent_restarts
    probe_ending
    probe_liveness
    probe_readiness
    probe_replaced_on_failure
    probe_sidecar
    probe_startup
    probe_startup_fails
    pull_always_verified
    pull_intent_left
    pull_proof
    reboot
    removal
    removal_before_start
    removal_polite
    resize
    resize_crash
    resize_refused
    resize_restart
    resize_waits
    restart_all
    restart_all_loop
    restart_count_from_logs
    restart_on_failure
    restart_rules
    restart_untouched
    runtime_restart
    same_name
    same_uid_again
    same_uid_changed
    sandbox_answer_lost
    sandbox_lost
    shutdown
    shutdown_cancelled
    sidecar
    sidecar_of_a_job
    sidecar_past_grace
    sidecar_stop_order
    source_emptied
    source_fails
    start_done_but_failed
    start_fails
    starts
    sysctl_forbidden
    terminal_stays
    volume_crash_between_mount_and_start
    volume_files_follow_labels
    volume_hangs
    volume_recovers
}
