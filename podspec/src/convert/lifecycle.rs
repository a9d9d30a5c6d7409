//! Hooks, stop signal and restart rules of a container, with ports as numbers and paths as they are sent.

use components::hooks::{HookAction, LifecycleSpec, RestartAction, RestartRule};
use components::ids::Sensitive;
use components::spec::RestartPolicy;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a container says of its life.
pub(super) fn of(container: &api::Container) -> LifecycleSpec {
    let set = container.lifecycle.as_ref();
    let hook = |handler: Option<&api::LifecycleHandler>| handler.map(|h| action(container, h));
    LifecycleSpec {
        post_start: hook(set.and_then(|l| l.post_start.as_ref())),
        pre_stop: hook(set.and_then(|l| l.pre_stop.as_ref())),
        stop_signal: set.and_then(|l| l.stop_signal.clone()).filter(|signal| !signal.is_empty()),
        restart_policy: container.restart_policy.as_deref().map(|policy| match policy {
            "Never" => RestartPolicy::Never,
            "OnFailure" => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }),
        restart_rules: container.restart_policy_rules.iter().flatten().filter_map(rule).collect(),
    }
}

fn rule(rule: &api::ContainerRestartRule) -> Option<RestartRule> {
    let on = rule.exit_codes.as_ref()?;
    let action = if rule.action == "RestartAllContainers" { RestartAction::RestartAll } else { RestartAction::Restart };
    Some(RestartRule { action, is_in: on.operator != "NotIn", codes: on.values.clone().unwrap_or_default() })
}

fn action(container: &api::Container, handler: &api::LifecycleHandler) -> HookAction {
    if let Some(exec) = &handler.exec {
        return HookAction::Exec(exec.command.iter().flatten().map(|word| Sensitive(word.clone())).collect());
    }
    if let Some(get) = &handler.http_get {
        let path = get.path.clone().unwrap_or_default();
        let headers = get.http_headers.iter().flatten();
        return HookAction::Http {
            tls: get.scheme.as_deref() == Some("HTTPS"),
            host: get.host.clone().filter(|host| !host.is_empty()),
            port: port(container, &get.port),
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            headers: headers.map(|h| (h.name.clone(), Sensitive(h.value.clone()))).collect(),
        };
    }
    if let Some(sleep) = &handler.sleep {
        return HookAction::Sleep(u32::try_from(sleep.seconds).unwrap_or(0));
    }
    HookAction::Invalid("tcpSocket")
}

/// A port by number or by name; 0 when no port of the container has the name, so that the hook fails.
fn port(container: &api::Container, port: &IntOrString) -> u16 {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            named.map_or_else(|| name.parse().unwrap_or(0), |p| p.container_port)
        }
    };
    u16::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(json: &str) -> api::Container {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn hooks_become_what_is_done() {
        let spec = of(&container(
            r#"{"name":"c","ports":[{"name":"web","containerPort":80}],"lifecycle":{
                "postStart":{"httpGet":{"port":"web","path":"up","scheme":"HTTPS"}},
                "preStop":{"exec":{"command":["sleep","600"]}},"stopSignal":"SIGUSR1"}}"#,
        ));
        let command: std::sync::Arc<[Sensitive]> = [Sensitive("sleep".into()), Sensitive("600".into())].into();
        assert_eq!(spec.pre_stop, Some(HookAction::Exec(command)));
        let http = HookAction::Http { tls: true, host: None, port: 80, path: "/up".into(), headers: Vec::new() };
        assert_eq!(spec.post_start, Some(http));
        assert_eq!(spec.stop_signal.as_deref(), Some("SIGUSR1"));
    }

    #[test]
    fn restart_rules_keep_their_order() {
        let spec = of(&container(
            r#"{"name":"c","restartPolicy":"Never","restartPolicyRules":[
                {"action":"Restart","exitCodes":{"operator":"In","values":[42]}},
                {"action":"RestartAllContainers","exitCodes":{"operator":"NotIn","values":[0]}}]}"#,
        ));
        assert_eq!(spec.restart_policy, Some(RestartPolicy::Never));
        let actions: Vec<_> = spec.restart_rules.iter().map(|r| (r.action, r.is_in)).collect();
        assert_eq!(actions, [(RestartAction::Restart, true), (RestartAction::RestartAll, false)]);
    }
}
