//! What a container sees of its pod and its node: names, addresses, resolver, users, privileges, environment.

use std::collections::BTreeMap;

use tests::lab::BUSYBOX_IMAGE;
use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// The lines that a pod's container printed, with what stands before `=` as the key.
fn said(node: &mut Node, pod: &str) -> BTreeMap<String, String> {
    // An init container may be seen running before it.
    let container =
        node.wait("its container runs", SOON, |node| Ok(node.running(pod)?.into_iter().find(|one| one.name == "c")));
    let container = container.unwrap();
    let log = node.wait("the container has printed everything", SOON, |node| {
        Ok(Some(node.container_log(&container)?).filter(|log| log.contains(" stdout F END")))
    });
    let log = log.unwrap();
    let lines = log.lines().filter_map(|line| line.split_once(" stdout F ").map(|(_, text)| text));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

const VIEW: &str = "
echo uid=$(id -u) gid=$(id -g)
echo groups=$(id -G)
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | sed 's/:[[:space:]]*/=/'
echo hostname=$(hostname)
echo fqdn=$(hostname -f)
echo range=$(cat /proc/sys/net/ipv4/ip_local_port_range)
echo resolver=$(cat /etc/resolv.conf)
echo hosts=$(tail -n +8 /etc/hosts)
touch /x 2>/dev/null && echo root=writable || echo root=readonly
[ \"$(cat /proc/1/comm)\" = sh ] && echo first=own || echo first=shared
head -c1 /proc/kcore >/dev/null 2>&1 && echo kcore=shown || echo kcore=masked
env | grep -E '^(NAME|UID|IPS|CPU|MEM|REF|LIST)='
echo END
";

/// A pod that uses much of what its spec can say of its surroundings, and prints what came of it.
fn view_manifest() -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: view, uid: uid-view, labels: {{app: web}}}}
spec:
  terminationGracePeriodSeconds: 1
  hostname: web
  subdomain: sub
  shareProcessNamespace: true
  hostAliases: [{{ip: 10.9.9.9, hostnames: [alias.example]}}]
  dnsPolicy: None
  dnsConfig: {{nameservers: [9.9.9.9], searches: [corp.example], options: [{{name: ndots, value: \"2\"}}]}}
  securityContext:
    fsGroup: 2000
    supplementalGroups: [3000]
    sysctls: [{{name: net.ipv4.ip_local_port_range, value: \"32000 61000\"}}]
  containers:
  - name: c
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {script}]
    args: [unused, \"$(NAME)\"]
    env:
    - {{name: NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
    - {{name: UID, valueFrom: {{fieldRef: {{fieldPath: metadata.uid}}}}}}
    - {{name: IPS, valueFrom: {{fieldRef: {{fieldPath: status.podIPs}}}}}}
    - {{name: CPU, valueFrom: {{resourceFieldRef: {{resource: limits.cpu, divisor: 1m}}}}}}
    - {{name: MEM, valueFrom: {{resourceFieldRef: {{resource: requests.memory, divisor: 1Mi}}}}}}
    - {{name: REF, value: \"$(NAME)-$(NOPE)-$$(NAME)\"}}
    - {{name: LIST, valueFrom: {{fieldRef: {{fieldPath: \"metadata.labels['app']\"}}}}}}
    resources: {{requests: {{cpu: 100m, memory: 16Mi}}, limits: {{cpu: 250m, memory: 64Mi}}}}
    securityContext:
      runAsUser: 1000
      runAsGroup: 1001
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {{drop: [ALL], add: [NET_BIND_SERVICE]}}
      seccompProfile: {{type: RuntimeDefault}}
",
        script = serde_json::Value::from(format!("{VIEW}{WAIT}"))
    )
}

#[test]
fn a_confined_container_sees_what_its_spec_says() {
    let Some(mut node) = chosen_node() else { return };
    node.put("view.yaml", view_manifest()).unwrap();
    let said = said(&mut node, "view");
    let ip = said["IPS"].clone();
    assert!(ip.parse::<std::net::Ipv4Addr>().is_ok(), "{ip}");
    let hosts = format!("{ip} web.sub.default.svc. web # Entries added by HostAliases. 10.9.9.9 alias.example");
    let expect = [
        ("uid", "1000 gid=1001"),
        ("groups", "1001 2000 3000"),
        ("CapBnd", "0000000000000400"),
        ("CapEff", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("hostname", "web"),
        ("range", "32000 61000"),
        ("resolver", "search corp.example nameserver 9.9.9.9 options ndots:2"),
        ("hosts", hosts.as_str()),
        ("root", "readonly"),
        ("first", "shared"),
        ("kcore", "masked"),
        ("NAME", "view-lab"),
        ("UID", "uid-view"),
        ("CPU", "250"),
        ("MEM", "16"),
        ("REF", "view-lab-$(NOPE)-$(NAME)"),
        ("LIST", "web"),
    ];
    for (key, value) in expect {
        let seen = said.get(key).map(String::as_str);
        // A capability given to a user that is not root is effective only where the runtime makes it so.
        let fine = seen == Some(value) || (key == "CapEff" && seen == Some("0000000000000400"));
        assert!(fine, "{key}: {seen:?}, expected {value:?}\n{said:#?}");
    }
    assert!(said["fqdn"].starts_with("web.sub.default.svc"), "{}", said["fqdn"]);
}

#[test]
fn the_nodes_namespaces_and_privileges_are_shared_when_asked_for() {
    let Some(mut node) = chosen_node() else { return };
    let more = "  hostNetwork: true
  hostPID: true
  hostIPC: true
  terminationGracePeriodSeconds: 1
";
    let script = "for ns in net pid ipc; do echo $ns=$(readlink /proc/self/ns/$ns); done
grep CapEff: /proc/self/status | sed 's/:[[:space:]]*/=/'; grep Seccomp: /proc/self/status | sed 's/:[[:space:]]*/=/'
echo head=$(head -1 /etc/hosts); echo END; ";
    let manifest = shell_pod("host", &format!("{script}{WAIT}"), more) + "    securityContext: {privileged: true}\n";
    node.put("host.yaml", manifest).unwrap();
    let said = said(&mut node, "host");
    for ns in ["net", "pid", "ipc"] {
        let own = std::fs::read_link(format!("/proc/self/ns/{ns}")).unwrap();
        assert_eq!(said[ns], own.to_string_lossy(), "{ns}");
    }
    assert_eq!(said["Seccomp"], "0");
    assert!(u64::from_str_radix(&said["CapEff"], 16).unwrap().count_ones() > 30, "{said:?}");
    assert_eq!(said["head"], "# Kubernetes-managed hosts file (host network).");
}

#[test]
fn root_is_refused_and_the_reason_shown() {
    let Some(mut node) = chosen_node() else { return };
    let more = "  securityContext: {runAsNonRoot: true}\n";
    node.put("root.yaml", shell_pod("root", WAIT, more)).unwrap();
    let message = node.wait("the pod tells why it waits", SOON, |node| {
        let status = node.pod_status(&format!("root-{NODE}"))?;
        Ok(status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().map(str::to_owned))
    });
    let message = message.unwrap();
    assert!(
        message.starts_with("container has runAsNonRoot and image will run as root (pod: \"root-lab_"),
        "{message}"
    );
    assert!(node.crictl().containers_of(&format!("root-{NODE}")).unwrap().is_empty());
}

#[test]
fn a_forbidden_sysctl_fails_the_pod() {
    let Some(mut node) = chosen_node() else { return };
    let more = "  securityContext: {sysctls: [{name: net.core.somaxconn, value: \"99\"}]}\n";
    node.put("bad.yaml", shell_pod("bad", WAIT, more)).unwrap();
    let name = format!("bad-{NODE}");
    let status = node.wait("the pod failed", SOON, |node| {
        let status = node.pod_status(&name)?;
        Ok((status["phase"] == "Failed").then_some(status))
    });
    let status = status.unwrap();
    assert_eq!(status["reason"], "SysctlForbidden");
    assert_eq!(status["message"], "Pod was rejected: forbidden sysctl: \"net.core.somaxconn\" not allowlisted");
    assert!(node.crictl().pods().unwrap().iter().all(|sandbox| sandbox.name != name));
}

#[test]
fn environment_comes_from_a_file_that_an_init_container_wrote() {
    let Some(mut node) = chosen_node() else { return };
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: envfile}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: e, emptyDir: {{}}}}]
  initContainers:
  - name: w
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {write}]
    volumeMounts: [{{name: e, mountPath: /e}}]
  containers:
  - name: c
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {read}]
    env:
    - {{name: KEY, valueFrom: {{fileKeyRef: {{volumeName: e, path: f.env, key: KEY}}}}}}
    - {{name: NONE, valueFrom: {{fileKeyRef: {{volumeName: e, path: none.env, key: KEY, optional: true}}}}}}
    - {{name: REF, value: \"<$(KEY)>\"}}
",
        write = serde_json::Value::from("echo \"KEY='v 1' # note\" > /e/f.env"),
        read = serde_json::Value::from(format!("env | grep -E '^(KEY|NONE|REF)='; echo END; {WAIT}"))
    );
    node.put("envfile.yaml", manifest).unwrap();
    let said = said(&mut node, "envfile");
    assert_eq!(said["KEY"], "v 1");
    assert_eq!(said["REF"], "<v 1>");
    assert!(!said.contains_key("NONE"), "{said:?}");
}

#[test]
fn classes_weigh_what_their_pods_request() {
    let Some(mut node) = chosen_node() else { return };
    let resources = "    resources: {requests: {cpu: 100m}}\n";
    node.put("heavy.yaml", shell_pod("heavy", WAIT, "  terminationGracePeriodSeconds: 1\n") + resources).unwrap();
    node.wait_running("heavy", SOON).unwrap();
    let top = std::path::Path::new("/sys/fs/cgroup/cpu").join(node.lab.cgroup().trim_start_matches('/'));
    if !top.is_dir() {
        eprintln!("no v1 hierarchy of cpu: the unit tests hold what is written on v2");
        return;
    }
    let shares = move |class: &str| std::fs::read_to_string(top.join("kubepods").join(class).join("cpu.shares"));
    let wait = |node: &mut Node, expect: &'static str| {
        let shares = shares.clone();
        node.wait("burstable pods weigh their requests", SOON, move |_| {
            Ok((shares("burstable")?.trim() == expect).then_some(()))
        })
    };
    wait(&mut node, "102").unwrap();
    assert_eq!(shares("besteffort").unwrap().trim(), "2");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(shares("").unwrap().trim(), (1024 * cpus).to_string());
    node.remove("heavy.yaml").unwrap();
    wait(&mut node, "2").unwrap();
}
