//! Images of a registry that asks for a login: pull secrets, credential providers, and who may use what was pulled.

use super::registry::Registry;
use super::*;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A pod with an image of the registry.
fn private(name: &str, image: &str, rest: &str) -> String {
    pod(name, WAIT, rest).replace(tests::lab::BUSYBOX_IMAGE, image)
}

const WAITING: &str = ".status.containerStatuses[0].state.waiting.reason";

#[test]
fn private_images_are_pulled_with_secrets_and_by_credential_providers() {
    let Some(mut rig) = Rig::new() else { return };
    let registry = Registry::start(&rig.node.lab.dir());
    let (config, bin) = (rig.node.lab.dir().join("providers.yaml"), rig.node.lab.dir().join("providers"));
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\ncat > {}/asked\n\
         echo '{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\
         \"cacheKeyType\":\"Registry\",\"auth\":{{\"127.0.0.1:{}\":{{\"username\":\"user\",\"password\":\"secret\"}}}}}}'\n",
        bin.display(),
        registry.port
    );
    fs::write(bin.join("lab-provider"), script).unwrap();
    fs::set_permissions(bin.join("lab-provider"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
         - {{name: lab-provider, matchImages: ['127.0.0.1:{}/team'], defaultCacheDuration: 1m,\n\
         \x20  apiVersion: credentialprovider.kubelet.k8s.io/v1}}\n",
        registry.port
    );
    fs::write(&config, text).unwrap();
    rig.node.flags = vec![
        format!("--image-credential-provider-config={}", config.display()),
        format!("--image-credential-provider-bin-dir={}", bin.display()),
    ];
    rig.cluster.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n")).unwrap();
    rig.node.start().unwrap();
    let server = format!("127.0.0.1:{}", registry.port);
    let secret = serde_json::json!({"auths": {server: {"username": "user", "password": "secret"}}});
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": secret.to_string()}});
    rig.cluster.apply(&secret.to_string()).unwrap();
    rig.cluster.apply(&private("nobody", &registry.image("own/app:1"), "")).unwrap();
    let end = std::time::Instant::now() + SOON;
    loop {
        let waits =
            rig.cluster.get("pod/nobody").unwrap()["status"]["containerStatuses"][0]["state"]["waiting"].clone();
        if waits["reason"] == "ErrImagePull" || waits["reason"] == "ImagePullBackOff" {
            break;
        }
        assert!(std::time::Instant::now() < end, "{waits}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(registry.served.lock().unwrap().is_empty(), "nobody may have it without a login");
    rig.cluster.apply(&private("own", &registry.image("own/app:1"), "  imagePullSecrets: [{name: login}]\n")).unwrap();
    rig.cluster.wait_field("pod/own", ".status.phase", "Running", SOON).unwrap();
    assert!(!bin.join("asked").exists(), "it is no image of the provider's");
    check_what_was_pulled(&mut rig, &registry, &secret);
    rig.cluster.apply(&private("team", &registry.image("team/app:2"), "")).unwrap();
    rig.cluster.wait_field("pod/team", ".status.phase", "Running", SOON).unwrap();
    let asked = fs::read_to_string(bin.join("asked")).unwrap();
    let expect = serde_json::json!({"kind": "CredentialProviderRequest", "image": registry.image("team/app"),
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1"});
    assert_eq!(serde_json::from_str::<serde_json::Value>(&asked).unwrap(), expect);
    let seen = rig.cluster.kubectl(&["get", "pod/nobody", "-o", &format!("jsonpath={{{WAITING}}}")]).unwrap();
    assert!(!seen.is_empty(), "it still waits");
    rig.node.check_alive().unwrap();
}

/// What `own` pulled with its secret is recorded, and only for those who have it.
fn check_what_was_pulled(rig: &mut Rig, registry: &Registry, secret: &serde_json::Value) {
    let image = registry.image("own/app:1");
    let records = rig.node.root().join("image_manager");
    let only = |kind: &str| -> Vec<String> {
        let files = fs::read_dir(records.join(kind)).unwrap();
        files
            .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
            .filter(|text| text.contains("own/app"))
            .collect()
    };
    rig.node.wait("the pull is recorded", SOON, |_| Ok((only("pulled").len() == 1).then_some(()))).unwrap();
    let text = only("pulled").remove(0);
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let proof = &record["credentialMapping"][registry.image("own/app").as_str()];
    let login = &proof["kubernetesSecrets"][0];
    assert_eq!((&login["namespace"], &login["name"]), (&"default".into(), &"login".into()), "{text}");
    // SHA-256 of {"username":"user","password":"secret"}.
    let hash: String = Sha256::digest(br#"{"username":"user","password":"secret"}"#)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(login["credentialHash"], hash.as_str());
    let served = registry.served.lock().unwrap().len();
    let mut copy = secret.clone();
    copy["metadata"]["name"] = "copy".into();
    rig.cluster.apply(&copy.to_string()).unwrap();
    rig.cluster.apply(&private("second", &image, "  imagePullSecrets: [{name: copy}]\n")).unwrap();
    let never = private("never", &image, "").replace("IfNotPresent", "Never");
    rig.cluster.apply(&never).unwrap();
    rig.cluster.apply(&private("stranger", &image, "")).unwrap();
    rig.cluster.wait_field("pod/second", ".status.phase", "Running", SOON).unwrap();
    rig.cluster.wait_field("pod/never", WAITING, "ErrImageNeverPull", SOON).unwrap();
    let refused = |pod: &str| rig.cluster.kubectl(&["get", pod, "-o", &format!("jsonpath={{{WAITING}}}")]).unwrap();
    let end = std::time::Instant::now() + SOON;
    while !["ErrImagePull", "ImagePullBackOff"].contains(&refused("pod/stranger").as_str()) {
        assert!(std::time::Instant::now() < end, "{}", refused("pod/stranger"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(registry.served.lock().unwrap().len(), served, "nobody was served once more");
    // The same after a restart.
    rig.node.stop().unwrap();
    rig.node.start().unwrap();
    rig.cluster.apply(&private("third", &image, "  imagePullSecrets: [{name: login}]\n")).unwrap();
    rig.cluster.wait_field("pod/third", ".status.phase", "Running", SOON).unwrap();
    rig.cluster.wait_field("pod/never", WAITING, "ErrImageNeverPull", SOON).unwrap();
    assert_eq!(registry.served.lock().unwrap().len(), served, "nobody was served once more");
}
