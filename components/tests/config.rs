//! The configuration as a user meets it: YAML in, effective JSON or a list of problems out.

use components::config::{Assembled, Document, KubeletConfiguration, assemble, not_acted_on};
use serde_json::{Value, json};

const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

fn document(file: &str, text: &str) -> Document {
    Document { file: file.into(), dir: "/etc/kubelet".into(), bytes: text.as_bytes().to_vec() }
}

fn load(main: &str, drop_ins: &[&str]) -> Assembled {
    let drop_ins: Vec<_> = drop_ins.iter().enumerate().map(|(i, text)| document(&format!("d{i}"), text)).collect();
    assemble(KubeletConfiguration::legacy(), Some(&document("main", main)), &drop_ins)
}

/// Loads a main file and drop-ins that all lack their head and must be fine.
#[track_caller]
fn good(main: &str, drop_ins: &[&str]) -> KubeletConfiguration {
    let drop_ins: Vec<_> = drop_ins.iter().map(|text| format!("{HEAD}{text}")).collect();
    let loaded = load(&format!("{HEAD}{main}"), &drop_ins.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(texts(&loaded.findings.errors), [""; 0]);
    assert_eq!(texts(&loaded.findings.warnings), [""; 0]);
    loaded.config
}

fn texts<T: ToString>(problems: &[T]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_reference_configuration_is_shown_as_the_kubelet_shows_it() {
    let yaml = include_str!("testdata/reference-config.yaml");
    let expect: Value = serde_json::from_str(include_str!("testdata/reference-configz.json")).unwrap();
    let loaded = load(yaml, &[]);
    assert_eq!(texts(&loaded.findings.errors), [""; 0]);
    assert_eq!(texts(&loaded.findings.warnings), [""; 0]);
    assert_eq!(loaded.config.validate(), []);
    assert_eq!(loaded.config.configz(), expect);
    // The order of the keys is the kubelet's as well.
    let shown = serde_json::to_string_pretty(&loaded.config).unwrap();
    let wanted = include_str!("testdata/reference-configz.json");
    let keys = |text: &str, indent: usize| -> Vec<String> {
        let prefix = format!("{}\"", " ".repeat(indent));
        let key = |line: &str| line.strip_prefix(&prefix)?.split('"').next().map(str::to_owned);
        text.lines().filter_map(key).collect()
    };
    assert_eq!(keys(&shown, 2), keys(wanted, 8));
    // And what is shown can be read again without change.
    let again = load(&serde_json::to_string(&loaded.config).unwrap(), &[]);
    assert_eq!(again.config, loaded.config);
}

#[test]
fn every_field_of_the_api_is_known_and_survives() {
    let yaml = include_str!("testdata/every-field.yaml");
    let loaded = load(yaml, &[]);
    assert_eq!(texts(&loaded.findings.errors), [""; 0]);
    assert_eq!(texts(&loaded.findings.warnings), [""; 0]);
    let shown = serde_json::to_value(&loaded.config).unwrap();
    // These exclude other settings of the file, so they are there with the zero value, which JSON leaves out.
    let empty = ["runOnce", "systemReservedCgroup", "kubeReservedCgroup"];
    for field in KubeletConfiguration::field_names() {
        assert_eq!(shown.get(field).is_none(), empty.contains(field), "{field}");
        assert!(yaml.contains(&format!("\n{field}:")) || yaml.starts_with(field), "{field} is not in the file");
    }
    assert_eq!(shown["reservedMemory"], json!([{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "64Mi"}}]));
    assert_eq!(shown["logging"]["flushFrequency"], json!(2_000_000_000), "shown the way it was given");
    assert_eq!(shown["registerWithTaints"][0], json!({"key": "a/b", "value": "c", "effect": "NoSchedule"}));
    assert_eq!(loaded.config.validate(), []);
    assert!(not_acted_on(&loaded.config).contains(&"reservedMemory"));
}

#[test]
fn defaults_depend_on_neighbours() {
    let c = good("nodeStatusUpdateFrequency: 7s\n", &[]);
    assert_eq!(c.node_status_report_frequency.to_string(), "7s");
    let c = good("nodeStatusUpdateFrequency: 7s\nnodeStatusReportFrequency: 0s\n", &[]);
    assert_eq!(c.node_status_report_frequency.to_string(), "7s");
    let c = good("", &[]);
    assert_eq!(c.node_status_report_frequency.to_string(), "5m0s");
    assert!(!good("maxParallelImagePulls: 4\n", &[]).serialize_image_pulls);
    assert!(good("maxParallelImagePulls: 1\n", &[]).serialize_image_pulls);
    assert!(good("maxParallelImagePulls: 4\nserializeImagePulls: true\n", &[]).serialize_image_pulls);
    assert_eq!(good("podPidsLimit: -77\n", &[]).pod_pids_limit, -1);
    assert_eq!(good("maxPods: 0\nregistryBurst: 0\n", &[]).max_pods, 110, "zero means the default");
    assert_eq!(good("registryPullQPS: 0\n", &[]).registry_pull_qps, 0, "here zero means no limit");
    assert_eq!(good("port: null\nresolvConf: null\n", &[]).port, 10250);
    assert_eq!(good("resolvConf: ''\n", &[]).resolv_conf, "");
    assert_eq!(good("enforceNodeAllocatable: []\n", &[]).enforce_node_allocatable, [""; 0]);
    let c = good("featureGates: {KubeletCrashLoopBackOffMax: false}\n", &[]);
    assert_eq!(c.crash_loop_back_off.max_container_restart_period, None);
    let c = good("featureGates: {KubeletEnsureSecretPulledImages: false}\n", &[]);
    assert_eq!(c.image_pull_credentials_verification_policy, "");
}

#[test]
fn hard_thresholds_are_taken_whole_unless_merging_is_asked_for() {
    assert_eq!(good("", &[]).eviction_hard.len(), 5);
    let c = good("evictionHard: {memory.available: 1Gi}\n", &[]);
    assert_eq!(serde_json::to_value(&c.eviction_hard).unwrap(), json!({"memory.available": "1Gi"}));
    let c = good("mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n", &[]);
    assert_eq!((c.eviction_hard.len(), c.eviction_hard["memory.available"].as_str()), (5, "1Gi"));
    assert!(good("evictionHard: {}\n", &[]).eviction_hard.is_empty());
}

#[test]
fn relative_paths_start_at_the_main_file() {
    let c = good("staticPodPath: manifests\ntlsCertFile: ../pki/a.crt\npodLogsDir: /x/./y\n", &[]);
    assert_eq!(c.static_pod_path, "/etc/kubelet/manifests");
    assert_eq!(c.tls_cert_file, "/etc/pki/a.crt");
    assert_eq!(c.pod_logs_dir, "/x/./y", "absolute paths stay as they are");
}

#[test]
fn drop_ins_merge_in_order() {
    let main = "maxPods: 50\nclusterDNS: [10.0.0.1, 10.0.0.2]\nfeatureGates: {EventedPLEG: true, MemoryQoS: true}\n\
                authentication: {x509: {clientCAFile: /ca}}\nevictionHard: {memory.available: 1Gi}\n";
    let first = "maxPods: 60\nclusterDNS: [10.0.0.9]\nfeatureGates: {MemoryQoS: false}\n";
    let second = "maxPods: 70\nauthentication: {anonymous: {enabled: true}}\nevictionHard: {pid.available: 5%}\n\
                  staticPodURLHeader: {X: [a, b]}\n";
    let c = good(main, &[first, second]);
    assert_eq!(c.max_pods, 70);
    assert_eq!(c.cluster_dns, ["10.0.0.9"], "lists are replaced");
    assert_eq!(serde_json::to_value(&c.feature_gates).unwrap(), json!({"EventedPLEG": true, "MemoryQoS": false}));
    assert_eq!(c.authentication.x509.client_ca_file, "/ca", "objects are merged");
    assert!(c.authentication.anonymous.enabled);
    assert_eq!(c.eviction_hard.keys().collect::<Vec<_>>(), ["memory.available", "pid.available"]);
    assert_eq!(c.static_pod_url_header["X"], ["a", "b"]);
    let c = good(main, &["maxPods: null\nclusterDNS: null\n"]);
    assert_eq!((c.max_pods, c.cluster_dns.len()), (110, 0), "null brings the default back");
    // The main file was completed before, so a neighbour's default does not move any more.
    let c = good("", &["nodeStatusUpdateFrequency: 7s\n"]);
    assert_eq!(c.node_status_report_frequency.to_string(), "5m0s");
}

#[test]
fn drop_ins_without_a_main_file_start_from_the_flags() {
    let mut flags = KubeletConfiguration::legacy();
    flags.max_pods = 33;
    let loaded = assemble(flags, None, &[document("d", &format!("{HEAD}port: 1234\n"))]);
    assert_eq!(texts(&loaded.findings.errors), [""; 0]);
    assert_eq!((loaded.config.max_pods, loaded.config.port, loaded.config.read_only_port), (33, 1234, 10255));
    assert!(loaded.config.authentication.anonymous.enabled && loaded.config.eviction_hard.is_empty());
}

#[test]
fn every_error_of_every_file_is_listed_at_once() {
    let main = format!(
        "{HEAD}maxPods: many\nport: 99999999999\nsyncFrequency: 10\nclusterDNS: 10.0.0.1\nenableServer: 'true'\n\
         fileCheckFrequency: 5 minutes\nauthentication: {{webhook: [true]}}\nstaticPodPath: 7\npodPidsLimit: 1.5\n\
         reservedMemory: [{{numaNode: 0, limits: {{memory: 1X}}}}, 3]\n"
    );
    let loaded = load(&main, &[&format!("{HEAD}\nfeatureGates: {{A: maybe}}\n"), "maxPods: 3\n"]);
    assert_eq!(
        texts(&loaded.findings.errors),
        [
            "main:3: maxPods: want a whole number, got the string \"many\"",
            "main:4: port: the number 99999999999 is out of range, want -2147483648 to 2147483647",
            "main:5: syncFrequency: want a duration such as \"1m30s\", got the number 10",
            "main:6: clusterDNS: want a list, got the string \"10.0.0.1\"",
            "main:7: enableServer: want true or false, got the string \"true\"",
            "main:8: fileCheckFrequency: \"5 minutes\": unknown unit in duration: want ns, us, ms, s, m or h",
            "main:9: authentication.webhook: want an object, got a list",
            "main:10: staticPodPath: want a string, got the number 7",
            "main:11: podPidsLimit: want a whole number, got the number 1.5",
            "main:12: reservedMemory[0].limits.memory: \"1X\": unknown quantity suffix: want one of n u m k M G T P E, \
             Ki Mi Gi Ti Pi Ei, or an exponent such as e3",
            "main:12: reservedMemory[1]: want an object, got the number 3",
            "d1:1: kind: missing, want KubeletConfiguration",
            "d1:1: apiVersion: missing, want kubelet.config.k8s.io/v1beta1",
            "d0:4: featureGates.A: want true or false, got the string \"maybe\"",
        ]
    );
}

#[test]
fn unknown_and_repeated_fields_only_warn() {
    let main = format!("{HEAD}maxPods: 5\nmaxpods: 6\nauthentication:\n  x509: {{caFile: /x}}\nmaxPods: 7\n");
    let loaded = load(&main, &[&format!("{HEAD}noSuchField: {{a: 1}}\n")]);
    assert_eq!(texts(&loaded.findings.errors), [""; 0]);
    assert_eq!(
        texts(&loaded.findings.warnings),
        [
            "main:7: maxPods: repeated field, the value of line 3 is replaced",
            "main:4: maxpods: unknown field, ignored",
            "main:6: authentication.x509.caFile: unknown field, ignored",
            "d0:3: noSuchField: unknown field, ignored",
        ]
    );
    assert_eq!(loaded.config.max_pods, 7);
}

#[track_caller]
fn refused(main: &str, expect: &[&str]) {
    assert_eq!(texts(&load(main, &[]).findings.errors), expect);
}

#[test]
fn what_is_no_kubelet_configuration_is_refused() {
    refused("", &["main: the file is empty: want a KubeletConfiguration"]);
    refused("hello", &["main:1: want a KubeletConfiguration object, got a string"]);
    refused("[1, 2]", &["main:1: want a KubeletConfiguration object, got a list"]);
    refused(
        "kind: Pod\napiVersion: v1\nspec: {}\n",
        &[
            "main:1: kind: want KubeletConfiguration, got \"Pod\"",
            "main:2: apiVersion: want kubelet.config.k8s.io/v1beta1, got \"v1\"",
        ],
    );
    refused(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n",
        &["main:2: apiVersion: want kubelet.config.k8s.io/v1beta1, got \"kubelet.config.k8s.io/v1\""],
    );
    refused(
        "kind: [a]\napiVersion: 1\n",
        &[
            "main:1: kind: want KubeletConfiguration, got a list",
            "main:2: apiVersion: want kubelet.config.k8s.io/v1beta1, got a number",
        ],
    );
}

#[test]
fn header_values_are_not_shown_by_the_redacted_copy() {
    let c = good("staticPodURLHeader: {Authorization: [Bearer s3cret, other]}\n", &[]);
    let shown = format!("{:?}{}", c.redacted(), c.redacted().configz());
    assert!(!shown.contains("s3cret") && shown.contains("<masked>"));
    assert_eq!(c.static_pod_url_header["Authorization"].len(), 2, "the original keeps them");
    let url = |url: &str| good(&format!("staticPodURL: {url}\n"), &[]).redacted().static_pod_url;
    assert_eq!(url("https://me:s3cret@host/p@q"), "https://<masked>@host/p@q");
    assert_eq!(url("https://host/p@q"), "https://host/p@q");
}

/// Validates a main file and compares the problems, by path and a part of the message.
#[track_caller]
fn invalid(main: &str, expect: &[(&str, &str)]) {
    let errors = good(main, &[]).validate();
    let shown = texts(&errors);
    assert_eq!(errors.iter().map(|e| e.path.as_str()).collect::<Vec<_>>(), paths(expect), "{main}: {shown:?}");
    for (error, (_, part)) in errors.iter().zip(expect) {
        assert!(error.message.contains(part), "{main}: want {part:?} in {:?}", error.message);
    }
}

fn paths<'a>(expect: &[(&'a str, &str)]) -> Vec<&'a str> {
    expect.iter().map(|(path, _)| *path).collect()
}

#[test]
fn a_valid_file_has_no_problems() {
    invalid("", &[]);
    invalid("memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}\n", &[]);
    invalid("cpuManagerPolicy: static\nkubeReserved: {cpu: 200m}\n", &[]);
    invalid("evictionSoft: {memory.available: 0%}\n", &[]);
    invalid("containerLogMaxSize: '-1'\n", &[]);
}

#[test]
fn numbers_out_of_range() {
    invalid("port: -1\n", &[("port", "want 1 to 65535")]);
    invalid(
        "port: 65536\nhealthzPort: 70000\nreadOnlyPort: -2\n",
        &[("port", "65536"), ("readOnlyPort", "-2"), ("healthzPort", "70000")],
    );
    invalid(
        "maxPods: -1\npodsPerCore: -1\noomScoreAdj: 1001\n",
        &[("maxPods", "at least 0"), ("podsPerCore", "at least 0"), ("oomScoreAdj", "-1000 to 1000")],
    );
    invalid("nodeLeaseDurationSeconds: -4\n", &[("nodeLeaseDurationSeconds", "at least 1")]);
    invalid("imageGCHighThresholdPercent: 60\n", &[("imageGCLowThresholdPercent", "less than")]);
    invalid("imageMaximumGCAge: 1m\n", &[("imageMaximumGCAge", "greater than imageMinimumGCAge")]);
    invalid(
        "containerLogMaxFiles: 1\ncontainerLogMaxWorkers: 0\ncontainerLogMonitorInterval: 2s\n",
        &[
            ("containerLogMaxFiles", "at least 2"),
            ("containerLogMaxWorkers", "at least 1"),
            ("containerLogMonitorInterval", "at least 3s"),
        ],
    );
    invalid(
        "crashLoopBackOff: {maxContainerRestartPeriod: 301s}\n",
        &[("crashLoopBackOff.maxContainerRestartPeriod", "1s to 5m0s")],
    );
    invalid("cpuCFSQuotaPeriod: 2s\n", &[("cpuCFSQuotaPeriod", "1ms to 1s")]);
    invalid("memoryThrottlingFactor: 1.5\n", &[("memoryThrottlingFactor", "at most 1")]);
    invalid("userNamespaces: {idsPerPod: 70000}\n", &[("userNamespaces.idsPerPod", "multiple of 65536")]);
    invalid("maxParallelImagePulls: 0\n", &[("maxParallelImagePulls", "at least 1")]);
    invalid("logging: {flushFrequency: -1s}\n", &[("logging.flushFrequency", "greater than zero")]);
}

#[test]
fn unknown_choices() {
    invalid(
        "topologyManagerPolicy: strict\ntopologyManagerScope: node\n",
        &[("topologyManagerPolicy", "single-numa-node"), ("topologyManagerScope", "container, pod")],
    );
    invalid(
        "cpuManagerPolicy: dynamic\nmemoryManagerPolicy: static\n",
        &[("cpuManagerPolicy", "none, static"), ("memoryManagerPolicy", "None, Static")],
    );
    invalid(
        "cgroupDriver: cgroupv2\nhairpinMode: x\nmemorySwap: {swapBehavior: UnlimitedSwap}\n",
        &[("hairpinMode", "hairpin-veth"), ("memorySwap.swapBehavior", "LimitedSwap"), ("cgroupDriver", "systemd")],
    );
    invalid(
        "authorization: {mode: RBAC}\nlogging: {format: xml}\n",
        &[("authorization.mode", "AlwaysAllow"), ("logging.format", "json")],
    );
    invalid(
        "tlsMinVersion: TLS12\ntlsCipherSuites: [AES]\ntlsCurvePreferences: [23, 23, 1]\n",
        &[
            ("tlsMinVersion", "VersionTLS12"),
            ("tlsCipherSuites[0]", "not a known cipher"),
            ("tlsCurvePreferences[1]", "twice"),
            ("tlsCurvePreferences[2]", "not a known group"),
        ],
    );
    invalid("address: localhost\n", &[("address", "not an IP")]);
    invalid(
        "imagePullCredentialsVerificationPolicy: Always\n",
        &[("imagePullCredentialsVerificationPolicy", "AlwaysVerify")],
    );
}

#[test]
fn settings_that_need_or_exclude_each_other() {
    invalid(
        "serializeImagePulls: true\nmaxParallelImagePulls: 3\n",
        &[("maxParallelImagePulls", "serializeImagePulls")],
    );
    invalid("systemCgroups: /x\n", &[("systemCgroups", "cgroupRoot")]);
    invalid("tlsCertFile: /a\n", &[("tlsCertFile", "tlsPrivateKeyFile")]);
    invalid(
        "shutdownGracePeriod: 500ms\nshutdownGracePeriodCriticalPods: 1s\n",
        &[("shutdownGracePeriod", "at least 1s"), ("shutdownGracePeriodCriticalPods", "longer than")],
    );
    let by_priority = "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]\n";
    invalid(&format!("shutdownGracePeriod: 5s\n{by_priority}"), &[("shutdownGracePeriodByPodPriority", "together")]);
    invalid(
        "enforceNodeAllocatable: [pods, pods, none, kube-reserved, all]\n",
        &[
            ("enforceNodeAllocatable[1]", "twice"),
            ("enforceNodeAllocatable[2]", "alone"),
            ("enforceNodeAllocatable[3]", "kubeReservedCgroup"),
            ("enforceNodeAllocatable[4]", "\"all\""),
        ],
    );
    invalid(
        "enforceNodeAllocatable: [system-reserved, system-reserved-compressible]\nsystemReservedCgroup: /s\ncgroupsPerQOS: false\n",
        &[
            ("enforceNodeAllocatable[0]", "cgroupsPerQOS"),
            ("enforceNodeAllocatable[1]", "exclude"),
            ("enforceNodeAllocatable[1]", "cgroupsPerQOS"),
        ],
    );
    invalid(
        "reservedSystemCPUs: 3-1\nkubeReservedCgroup: /k\n",
        &[("reservedSystemCPUs", "together"), ("reservedSystemCPUs", "such as 0-2,7")],
    );
    invalid("cpuManagerPolicy: static\n", &[("cpuManagerPolicy", "some CPU")]);
    invalid(
        "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n",
        &[("cpuManagerPolicyOptions[full-pcpus-only]", "static")],
    );
    invalid("enableSystemLogQuery: true\nenableSystemLogHandler: false\n", &[("enableSystemLogQuery", "Handler")]);
    invalid(
        "preloadedImagesVerificationAllowlist: [a:1]\n",
        &[
            ("preloadedImagesVerificationAllowlist", "NeverVerifyAllowlistedImages"),
            ("preloadedImagesVerificationAllowlist[0]", "neither tag nor digest"),
        ],
    );
    invalid(
        "logging: {format: json, vmodule: [{filePattern: a=b, verbosity: 1}]}\n",
        &[("logging.vmodule", "text format"), ("logging.vmodule[0].filePattern", "without '='")],
    );
    invalid("runOnce: true\n", &[("runOnce", "no longer")]);
}

#[test]
fn eviction_and_reservations() {
    invalid(
        "evictionHard: {memory.free: 1Gi, nodefs.available: 110%, pid.available: '0'}\n",
        &[
            ("evictionHard[memory.free]", "not a known eviction signal"),
            ("evictionHard[nodefs.available]", "between 0% and 100%"),
            ("evictionHard[pid.available]", "greater than zero"),
        ],
    );
    invalid(
        "evictionSoft: {memory.available: 1Gi}\n",
        &[("evictionSoft[memory.available]", "evictionSoftGracePeriod")],
    );
    invalid(
        "evictionSoftGracePeriod: {memory.available: 90, x: 1s}\n".replace("90", "'90'").as_str(),
        &[
            ("evictionSoftGracePeriod[memory.available]", "missing unit"),
            ("evictionSoftGracePeriod.x", "not a known eviction signal"),
        ],
    );
    invalid(
        "evictionMinimumReclaim: {memory.available: -1Mi}\n",
        &[("evictionMinimumReclaim[memory.available]", "not be negative")],
    );
    invalid(
        "systemReserved: {cpu: lots, gpu: '1'}\nqosReserved: {memory: 120%, cpu: 1%}\n",
        &[
            ("systemReserved.cpu", "not a quantity"),
            ("systemReserved.gpu", "ephemeral-storage"),
            ("qosReserved.cpu", "not known"),
            ("qosReserved.memory", "0% to 100%"),
        ],
    );
    invalid(
        "reservedMemory: [{numaNode: 0, limits: {memory: 0, cpu: 1}}, {numaNode: 0, limits: {memory: 1Gi}}]\n",
        &[
            ("reservedMemory[0].limits.cpu", "not a type of memory"),
            ("reservedMemory[0].limits.memory", "not be zero"),
            ("reservedMemory[1].limits.memory", "twice"),
        ],
    );
}

#[test]
fn feature_gates() {
    invalid(
        "featureGates: {NoSuchGate: true, NodeSwap: false}\n",
        &[("featureGates.NoSuchGate", "unknown"), ("featureGates.NodeSwap", "locked to true")],
    );
    invalid(
        "featureGates: {MemoryQoS: false}\nmemoryReservationPolicy: TieredReservation\nmemoryThrottlingFactor: 0.8\n",
        &[("memoryReservationPolicy", "MemoryQoS"), ("memoryThrottlingFactor", "MemoryQoS")],
    );
    invalid(
        "logging: {options: {text: {splitStream: true}}}\n",
        &[("logging.options.text.splitStream", "LoggingAlphaOptions")],
    );
    invalid(
        "featureGates: {CustomCPUCFSQuotaPeriod: false}\ncpuCFSQuotaPeriod: 50ms\n",
        &[("cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod")],
    );
    invalid("defaultPodSysctls: {net.core.somaxconn: '1'}\n", &[("defaultPodSysctls", "DefaultPodSysctls")]);
    invalid(
        "featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {kernel.x: '1', net/a: '1', net.a: '2', N: x}\n",
        &[
            ("defaultPodSysctls.N", "not the name"),
            ("defaultPodSysctls[kernel.x]", "namespaced"),
            ("defaultPodSysctls[net/a]", "twice"),
        ],
    );
}

#[test]
fn taints() {
    invalid(
        "registerWithTaints: [{key: 'a b', value: 'c d', effect: Never, timeAdded: '2026-01-01T00:00:00Z'}]\n",
        &[
            ("registerWithTaints[0].key", "letters"),
            ("registerWithTaints[0].value", "letters"),
            ("registerWithTaints[0].effect", "NoExecute"),
            ("registerWithTaints[0].timeAdded", "not be set"),
        ],
    );
}

#[test]
fn what_the_kubelet_starts_with_is_only_advised_against() {
    let c =
        good("clusterDNS: [10.0.0.1, dns]\nstaticPodURL: 'ftp://x'\nkubeletCgroups: /a\nkubeReservedCgroup: /b\n", &[]);
    assert_eq!(c.validate(), []);
    assert_eq!(
        c.advice().iter().map(|e| e.path.as_str()).collect::<Vec<_>>(),
        ["clusterDNS[1]", "staticPodURL", "kubeletCgroups"]
    );
    assert_eq!(c.cluster_dns_addresses().len(), 1);
    assert_eq!(good("staticPodURL: https://host/x\nclusterDNS: ['fd00::a']\n", &[]).advice(), []);
}

#[test]
fn the_host_is_checked_apart() {
    let c = good("singleProcessOOMKill: false\n", &[]);
    assert_eq!(c.validate_host(false), []);
    let paths: Vec<_> = c.validate_host(true).into_iter().map(|e| e.path).collect();
    assert_eq!(paths, ["failCgroupV1", "singleProcessOOMKill"]);
}

#[test]
fn a_problem_found_by_validation_knows_its_place() {
    let loaded = load(&format!("{HEAD}evictionHard:\n  memory.free: 1Gi\nport: -1\n"), &[&format!("{HEAD}port: -3\n")]);
    let place = |path: &str| loaded.origins.find(path).map(|at| format!("{}:{}", at.file, at.line)).unwrap();
    assert_eq!(place("port"), "d0:3");
    assert_eq!(place("evictionHard[memory.free]"), "main:4");
    assert_eq!(place("evictionHard[other]"), "main:3");
    assert!(loaded.origins.find("maxPods").is_none());
}

#[test]
fn damaged_files_never_panic_and_get_one_line_for_each_problem() {
    let whole = include_bytes!("testdata/every-field.yaml");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let odd = *b"\0\n\t:{}[]-&*!|>'\"#%@`,?~\xff\x7f<=.0e";
    for _ in 0..300 {
        let mut bytes = whole.to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] = odd[random(odd.len())],
                2 => bytes.insert(at, odd[random(odd.len())]),
                3 => drop(bytes.drain(at..(at + random(40)).min(bytes.len()))),
                _ => bytes.extend_from_within(at..(at + 60).min(bytes.len())),
            }
            bytes.push(b'\n');
        }
        let file = Document { file: "main".into(), dir: "/etc".into(), bytes };
        let loaded = assemble(KubeletConfiguration::legacy(), Some(&file), std::slice::from_ref(&file));
        let mut lines = texts(&loaded.findings.errors);
        lines.extend(texts(&loaded.findings.warnings));
        lines.extend(texts(&loaded.config.validate()));
        assert!(lines.iter().all(|line| !line.contains(['\n', '\r']) && line.len() < 1000), "{lines:?}");
    }
}

#[test]
fn a_key_with_a_line_break_stays_on_one_line() {
    let loaded = load(&format!("{HEAD}\"a\\nb\": 1\n"), &[]);
    assert_eq!(texts(&loaded.findings.warnings), ["main:3: [a\\nb]: unknown field, ignored"]);
}
