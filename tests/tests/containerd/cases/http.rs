//! Cases about the TLS port: port-forward and exec; told in `streams`, which speaks as clients do.

#[test]
fn htp_1_port_forward_survives_a_refused_port_and_dropped_clients() {
    crate::streams::port_forward_survives_a_refused_port_and_dropped_clients();
}

#[test]
fn htp_2_exec_tells_output_exit_code_and_ends_with_its_input() {
    crate::streams::exec_tells_output_exit_code_and_ends_with_its_input();
}

#[test]
fn htp_2e_a_session_that_breaks_is_no_success_and_leaves_nothing() {
    crate::streams::a_session_that_breaks_is_no_success_and_leaves_nothing();
}
