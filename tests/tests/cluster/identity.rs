//! A node that gets its certificates from the cluster: the first one with a bootstrap token, new ones before they end,
//! and the one that its port shows.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A bootstrap token, and what its owners may do.
const TOKEN: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
"#;

/// A group gets a role of the whole cluster.
fn bind(name: &str, role: &str, group: &str) -> String {
    format!(
        "---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '{role}'}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: '{group}'}}]
"
    )
}

impl Rig {
    /// A node that has a bootstrap token and no kubeconfig yet.
    fn newcomer() -> Option<Self> {
        let mut rig = Self::configured()?;
        let bootstrapper = bind("bootstrap", "system:node-bootstrapper", "system:bootstrappers");
        rig.cluster.apply(&format!("{TOKEN}{bootstrapper}")).unwrap();
        let bootstrap = rig.cluster.file("bootstrap.kubeconfig");
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{}', certificate-authority: {}}}}}]\n\
             users: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]\n",
            rig.cluster.server(),
            rig.cluster.file("ca.crt").display(),
        );
        fs::write(&bootstrap, text).unwrap();
        rig.node.kubeconfig = Some(rig.node.lab.dir().join("kubelet.conf"));
        rig.node.flags = vec![format!("--bootstrap-kubeconfig={}", bootstrap.display())];
        rig.node.configure("rotateCertificates: true").unwrap();
        Some(rig)
    }

    /// Names of the requests for a signer that are neither approved nor denied.
    fn pending(&self, signer: &str) -> Vec<String> {
        let list = self.cluster.get("certificatesigningrequests").unwrap();
        let open = list["items"].as_array().unwrap().iter().filter(|csr| {
            csr["spec"]["signerName"] == signer && csr["status"]["conditions"].as_array().is_none_or(Vec::is_empty)
        });
        open.map(|csr| csr["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn wait_pending(&self, signer: &str) -> String {
        let end = std::time::Instant::now() + SOON;
        loop {
            if let Some(name) = self.pending(signer).pop() {
                return name;
            }
            assert!(std::time::Instant::now() < end, "nobody asks {signer}:\n{}", self.node.log().unwrap());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn current(&self, store: &str) -> Option<PathBuf> {
        fs::read_link(self.node.root().join(format!("pki/{store}-current.pem"))).ok()
    }
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";

#[test]
fn a_newcomer_asks_until_somebody_approves_and_goes_on_after_a_crash() {
    let Some(mut rig) = Rig::newcomer() else { return };
    rig.cluster.start_controllers().unwrap();
    rig.node.put("still.yaml", pod("still", WAIT, "").replace("  nodeName: lab\n", "")).unwrap();
    rig.node.start().unwrap();
    let first = rig.wait_pending(CLIENT);
    let asked = rig.cluster.get(&format!("csr/{first}")).unwrap();
    assert_eq!(asked["spec"]["username"], "system:bootstrap:abcdef", "{asked}");
    assert_eq!(asked["spec"]["usages"], serde_json::json!(["digital signature", "client auth"]), "{asked}");
    rig.node.wait_running("still", SOON).unwrap();
    rig.cluster.kubectl(&["certificate", "deny", &first]).unwrap();
    rig.node
        .wait("the denial is told", SOON, |node| {
            let line = format!("certificate signing request {first} is denied, reason: KubectlDeny");
            Ok(node.log()?.contains(&line).then_some(()))
        })
        .unwrap();
    let second = rig.wait_pending(CLIENT);
    assert_ne!(first, second);
    rig.node.kill9().unwrap();
    rig.node.start().unwrap();
    rig.node.wait("it goes on", SOON, |node| Ok((node.log()?.matches(&second).count() >= 2).then_some(()))).unwrap();
    assert_eq!(rig.pending(CLIENT), [second.as_str()], "no request is made twice");
    rig.cluster.kubectl(&["certificate", "approve", &second]).unwrap();
    rig.cluster.wait_field("node/lab", READY, "True", SOON).unwrap();
    let certificate = rig.current("kubelet-client").unwrap();
    assert!(certificate.file_name().unwrap().to_str().unwrap().starts_with("kubelet-client-20"), "{certificate:?}");
    let kubeconfig = fs::read_to_string(rig.node.kubeconfig.as_ref().unwrap()).unwrap();
    assert!(kubeconfig.contains("pki/kubelet-client-current.pem"), "{kubeconfig}");
    // kubectl understands it, and the node is who it should be.
    let file = rig.node.kubeconfig.as_ref().unwrap().display().to_string();
    let who = rig.cluster.kubectl(&["--kubeconfig", &file, "auth", "whoami", "-o", "jsonpath={.status.userInfo}"]);
    let who = who.unwrap();
    assert!(who.contains("system:node:lab") && who.contains("system:nodes"), "{who}");
    rig.node.check_alive().unwrap();
}

#[test]
fn certificates_are_renewed_while_pods_run_and_the_port_gets_its_own() {
    let Some(mut rig) = Rig::newcomer() else { return };
    let own = "system:certificates.k8s.io:certificatesigningrequests";
    let first = bind("first", &format!("{own}:nodeclient"), "system:bootstrappers");
    rig.cluster.apply(&(first + &bind("next", &format!("{own}:selfnodeclient"), "system:nodes"))).unwrap();
    rig.cluster.start_controllers_with(&["--cluster-signing-duration=20s"]).unwrap();
    rig.node.configure("serverTLSBootstrap: true").unwrap();
    rig.node.start().unwrap();
    rig.cluster.wait_field("node/lab", READY, "True", SOON).unwrap();
    let before = rig.current("kubelet-client").unwrap();
    rig.cluster.apply(&pod("web", &format!("echo hello; {WAIT}"), "")).unwrap();
    rig.cluster.wait_field("pod/web", ".status.phase", "Running", SOON).unwrap();
    let container = rig.node.crictl().containers_of("web").unwrap()[0].id.clone();
    let refused = rig.cluster.kubectl(&["logs", "web"]).unwrap_err().to_string();
    assert!(refused.contains("tls"), "without a certificate: {refused}");
    let asked = rig.wait_pending(SERVING);
    rig.cluster.kubectl(&["certificate", "approve", &asked]).unwrap();
    rig.node
        .wait("the port shows the cluster's certificate", SOON, |node| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--max-time", "5", "--output", "/dev/null", "--cacert"]);
            curl.arg(rig.cluster.file("ca.crt")).arg(format!("https://{}:{}/healthz", node.address(), node.port()));
            Ok(curl.status()?.success().then_some(()))
        })
        .unwrap();
    assert_eq!(rig.cluster.kubectl(&["logs", "web"]).unwrap(), "hello\n");
    assert!(rig.current("kubelet-server").is_some());
    let renewed = |rig: &Rig| rig.current("kubelet-client").filter(|now| *now != before);
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while renewed(&rig).is_none() {
        assert!(std::time::Instant::now() < end, "not renewed:\n{}", rig.node.log().unwrap());
        std::thread::sleep(Duration::from_millis(200));
    }
    // The first certificate ends: only the new one is of use now.
    std::thread::sleep(Duration::from_secs(8));
    rig.cluster.apply(&pod("later", WAIT, "")).unwrap();
    rig.cluster.wait_field("pod/later", ".status.phase", "Running", SOON).unwrap();
    let now = rig.node.crictl().containers_of("web").unwrap();
    assert!(now.iter().any(|it| it.id == container && it.is_running()), "{now:?}");
    let page = rig.cluster.kubectl(&["get", "--raw", "/api/v1/nodes/lab/proxy/metrics"]).unwrap();
    for name in ["client_ttl_seconds ", "client_expiration_renew_errors ", "server_ttl_seconds "] {
        assert!(page.contains(&format!("kubelet_certificate_manager_{name}")), "{name} in {page}");
    }
    rig.node.check_alive().unwrap();
}
