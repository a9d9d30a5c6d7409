//! Environment of a container and `$(NAME)` expansion (contract 3.8).

use super::resources::with_pod_limits;
use crate::expand::expand;
use crate::objects::services;
use components::edge::host::EnvFileKey;
use components::ids::Sensitive;
use components::node::{Machine, NodeConfig};
use components::objects::{ObjectData, ObjectKind, ObjectRef, Objects, Services};
use components::spec::{ContainerSpec, EnvFrom, EnvSource, EnvVar, PodSpec, ResourceRequirements};
use std::collections::BTreeMap;

/// What environment values may refer to.
pub(crate) struct EnvContext<'a> {
    pub(crate) spec: &'a PodSpec,
    pub(crate) config: &'a NodeConfig,
    pub(crate) machine: &'a Machine,
    pub(crate) pod_ips: &'a [String],
    pub(crate) files: &'a [FileValue],
    pub(crate) objects: &'a Objects,
    pub(crate) services: &'a Services,
}

/// What was found of one value of an environment file: nothing when there is no such file or key.
pub(crate) type FileValue = Result<Option<Sensitive>, String>;

/// The values of environment files that a container's variables ask for.
pub(crate) fn file_keys(spec: &PodSpec, container: &ContainerSpec, config: &NodeConfig) -> Vec<EnvFileKey> {
    let key = |var: &EnvVar| match &var.source {
        EnvSource::File { volume, path, key, .. } => Some(EnvFileKey {
            volume: config.volume_dir(spec.uid.as_str(), "empty-dir", volume),
            path: path.clone(),
            key: key.clone(),
        }),
        _ => None,
    };
    container.env.iter().filter_map(key).collect()
}

/// The value, nothing for an optional one that is not there, or why there is none.
fn from_file(found: Option<&FileValue>, key: &str, path: &str, optional: bool) -> Result<Option<String>, String> {
    match found {
        Some(Ok(Some(Sensitive(value)))) => Ok(Some(value.clone())),
        Some(Ok(None)) | None if optional => Ok(None),
        Some(Ok(None)) | None => Err(format!("environment variable key {key:?} not found in file {path:?}")),
        Some(Err(why)) => Err(format!("couldn't parse env file: {why}")),
    }
}

impl<'a> EnvContext<'a> {
    /// The object that the pod refers to; `None` when there is none and the pod does without.
    fn object(&self, of: &ObjectRef) -> Result<Option<&'a ObjectData>, String> {
        match self.objects.get(of.kind, &self.spec.namespace, &of.name)? {
            None if of.optional => Ok(None),
            None => Err(format!("{} {:?} not found", of.kind.singular(), of.name)),
            found => Ok(found),
        }
    }
}

/// Variables as they are collected: values by name, names in the order of their first mention.
#[derive(Default)]
struct Collected {
    known: BTreeMap<String, String>,
    order: Vec<String>,
}

impl Collected {
    fn put(&mut self, name: &str, value: String) {
        if self.known.insert(name.to_owned(), value).is_none() {
            self.order.push(name.to_owned());
        }
    }
}

/// True while something that variables are made from was asked for and nothing is known of it.
pub(super) fn pending(objects: &Objects, services: &Services, spec: &PodSpec, container: &ContainerSpec) -> bool {
    let keys = container.env.iter().filter_map(|var| match &var.source {
        EnvSource::Key { object, .. } => Some(object),
        _ => None,
    });
    let mut all = container.env_from.iter().map(|from| &from.object).chain(keys);
    services::pending(services, spec) || all.any(|object| objects.pending(object, &spec.namespace))
}

/// Variables in order, expanded in one pass: a variable sees those declared before it, and those that name services.
/// Later ones of the same name replace earlier ones in place.
///
/// # Errors
/// The reference that cannot be resolved, as a sentence.
pub(super) fn variables(
    context: &EnvContext<'_>,
    container: &ContainerSpec,
) -> Result<Vec<(String, Sensitive)>, String> {
    let of_services = services::variables(context.services, context.spec)?;
    let mut out = Collected::default();
    let mut files = context.files.iter();
    for from in &container.env_from {
        all_keys(context, from, &mut out)?;
    }
    for var in &container.env {
        let value = match &var.source {
            EnvSource::Value(text) => {
                let lookup = |name: &str| out.known.get(name).or_else(|| of_services.get(name)).map(String::as_str);
                expand(&text.0, lookup)
            }
            EnvSource::Field(path) => field(context, path)?,
            EnvSource::Resource { container: name, resource, divisor_milli } => {
                resource_field(context, name, resource, *divisor_milli)?
            }
            EnvSource::File { volume, path, key, optional } => {
                let volume = context.config.volume_dir(context.spec.uid.as_str(), "empty-dir", volume);
                match from_file(files.next(), key, &format!("{volume}/{path}"), *optional)? {
                    Some(value) => value,
                    None => continue,
                }
            }
            EnvSource::Key { object, key } => match one_key(context, object, key)? {
                Some(value) => value,
                None => continue,
            },
        };
        out.put(&var.name, value);
    }
    for (name, value) in of_services {
        if !out.known.contains_key(&name) {
            out.put(&name, value);
        }
    }
    let Collected { mut known, order } = out;
    Ok(order
        .into_iter()
        .map(|name| {
            let value = known.remove(&name).unwrap_or_default();
            (name, Sensitive(value))
        })
        .collect())
}

/// Every key of an object as a variable. Names are not filtered: any key that the API takes is one.
fn all_keys(context: &EnvContext<'_>, from: &EnvFrom, out: &mut Collected) -> Result<(), String> {
    let Some(data) = context.object(&from.object)? else { return Ok(()) };
    for (key, value) in &data.data {
        out.put(&format!("{}{key}", from.prefix), text(&value.0));
    }
    Ok(())
}

/// The value of one key; `None` when it is missing and may be.
fn one_key(context: &EnvContext<'_>, object: &ObjectRef, key: &str) -> Result<Option<String>, String> {
    let Some(data) = context.object(object)? else { return Ok(None) };
    match data.data.get(key) {
        Some(value) => Ok(Some(text(&value.0))),
        None if object.optional => Ok(None),
        None => {
            let kind = match object.kind {
                ObjectKind::ConfigMap => "ConfigMap",
                ObjectKind::Secret => "Secret",
            };
            let (namespace, name) = (&context.spec.namespace, &object.name);
            Err(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
        }
    }
}

/// The runtime takes text only.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn field(context: &EnvContext<'_>, path: &str) -> Result<String, String> {
    let spec = context.spec;
    let keyed = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    let value = match path {
        "metadata.name" => spec.name.to_string(),
        "metadata.namespace" => spec.namespace.to_string(),
        "metadata.uid" => spec.uid.to_string(),
        "spec.nodeName" => context.config.node_name.to_string(),
        "spec.serviceAccountName" => spec.service_account.clone(),
        "status.hostIP" => context.machine.node_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => context.machine.node_ips.join(","),
        "status.podIP" => context.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => context.pod_ips.join(","),
        _ => keyed(&spec.labels, "metadata.labels['")
            .or_else(|| keyed(&spec.annotations, "metadata.annotations['"))
            .ok_or_else(|| format!("fieldRef {path:?} is not supported for environment variables"))?,
    };
    Ok(value)
}

/// The amount of a container's resource, divided and rounded up.
///
/// # Errors
/// The reference that cannot be resolved, as a sentence.
pub(crate) fn resource_field(
    context: &EnvContext<'_>,
    name: &str,
    resource: &str,
    divisor_milli: i64,
) -> Result<String, String> {
    let wanted = context.spec.containers.iter().find(|c| &*c.name == name);
    let container = wanted.ok_or_else(|| format!("resourceFieldRef names the unknown container {name:?}"))?;
    let milli = resource_milli(context, &with_pod_limits(context.spec, container), resource)
        .ok_or_else(|| format!("resourceFieldRef {resource:?} is not supported"))?;
    let divisor = i128::from(divisor_milli.max(1));
    // Rounded up, as the API documents.
    Ok(((milli + divisor - 1) / divisor).to_string())
}

/// The amount in thousandths; limits that are not set fall back on the pod's, then on what the node has for pods.
fn resource_milli(context: &EnvContext<'_>, own: &ResourceRequirements, resource: &str) -> Option<i128> {
    let units = |bytes: i64| i128::from(bytes) * 1000;
    let (machine, node) = (context.machine, &context.config.limits);
    let or = |known: i64, otherwise: i64| if known > 0 { known } else { otherwise };
    Some(match resource {
        "limits.cpu" => {
            let unset = || or(node.cpu_milli, i64::from(machine.cpus) * 1000);
            i128::from(own.limits.cpu_milli.filter(|v| *v > 0).unwrap_or_else(unset))
        }
        "requests.cpu" => i128::from(own.requests.cpu_milli.unwrap_or(0)),
        "limits.memory" => {
            let unset = || or(node.allocatable_memory_bytes, machine.memory_bytes);
            units(own.limits.memory_bytes.filter(|v| *v > 0).unwrap_or_else(unset))
        }
        "requests.memory" => units(own.requests.memory_bytes.unwrap_or(0)),
        "limits.ephemeral-storage" => {
            units(own.limits.ephemeral_storage_bytes.filter(|v| *v > 0).unwrap_or(node.allocatable_disk_bytes))
        }
        "requests.ephemeral-storage" => units(own.requests.ephemeral_storage_bytes.unwrap_or(0)),
        _ => {
            let (which, name) = resource.split_once('.')?;
            let set = if which == "limits" { &own.limits } else { &own.requests };
            name.starts_with("hugepages-").then(|| units(set.hugepages.get(name).copied().unwrap_or(0)))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn machine() -> Machine {
        Machine {
            cpus: 4,
            memory_bytes: 8 << 30,
            node_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
            ..Machine::default()
        }
    }

    /// Variables `NAME=VALUE`, `NAME<field`, `NAME<resource/divisor in thousandths` and `NAME<OBJECT.KEY`, and
    /// `PREFIX*OBJECT` for all keys, as the container sees them. Objects are those of [`fixtures::objects`].
    #[track_caller]
    fn check(given: &str, expect: &str) {
        let mut spec = fixtures::spec("always a");
        spec.labels.insert("app".into(), "web".into());
        spec.annotations.insert("example.com/note".into(), "x y".into());
        "sa".clone_into(&mut spec.service_account);
        spec.containers[0].resources.requests.cpu_milli = Some(100);
        spec.containers[0].resources.requests.memory_bytes = Some(64 << 20);
        let var = |text: &str| match text.split_once('<') {
            Some((name, from)) if from.contains(':') => {
                let (object, key) = from.split_once('.').unwrap();
                EnvVar {
                    name: name.into(),
                    source: EnvSource::Key { object: fixtures::reference(object), key: key.into() },
                }
            }
            Some((name, from)) => {
                let source = match from.split_once('/').filter(|(_, divisor)| divisor.parse::<i64>().is_ok()) {
                    Some((resource, divisor)) => EnvSource::Resource {
                        container: "a".into(),
                        resource: resource.into(),
                        divisor_milli: divisor.parse().unwrap(),
                    },
                    None => EnvSource::Field(from.into()),
                };
                EnvVar { name: name.into(), source }
            }
            None => {
                let (name, value) = text.split_once('=').unwrap();
                EnvVar { name: name.into(), source: EnvSource::Value(Sensitive(value.into())) }
            }
        };
        let from = |text: &str| {
            let (prefix, object) = text.split_once('*')?;
            Some(EnvFrom { prefix: prefix.into(), object: fixtures::reference(object) })
        };
        spec.containers[0].env_from = given.split(", ").filter_map(from).collect();
        spec.containers[0].env = given.split(", ").filter(|text| !text.contains('*')).map(var).collect();
        let mut node = fixtures::node();
        node.limits.cpu_milli = 3500;
        node.limits.allocatable_memory_bytes = 7 << 30;
        let ips = ["10.88.0.5".to_owned(), "fd00::5".to_owned()];
        let (objects, services) = (fixtures::objects(), Services::default());
        let context = EnvContext {
            spec: &spec,
            config: &node,
            machine: &machine(),
            pod_ips: &ips,
            files: &[],
            objects: &objects,
            services: &services,
        };
        let shown = match variables(&context, &spec.containers[0]) {
            Ok(vars) => vars.iter().map(|(n, v)| format!("{n}={}", v.0)).collect::<Vec<_>>().join(", "),
            Err(error) => error,
        };
        assert_eq!(shown, expect);
    }

    #[test]
    fn a_variable_sees_those_before_it() {
        check("A=1, B=$(A)-$(C), C=$(B)", "A=1, B=1-$(C), C=1-$(C)");
        check("A=$$(A), B=$(A)", "A=$(A), B=$(A)");
        check("A=1, A=2, B=$(A)", "A=2, B=2");
        check("POD<metadata.name, B=$(POD)", "POD=pod, B=pod");
    }

    #[test]
    fn keys_of_objects_come_before_the_variables_and_give_way_to_them() {
        check("*map:m, A=own, B=$(odd.key-1)", "A=own, odd.key-1=x, B=x");
        check("P_*map:m, B=$(P_A)", "P_A=from-map, P_odd.key-1=x, B=from-map");
        check("*map:m, *secret:s", "A=from-secret, odd.key-1=x");
        check("V<secret:s.A, W=$(V)", "V=from-secret, W=from-secret");
        check("*map:none?, *secret:none?, A=1", "A=1");
        check("V<map:none?.A, W<map:m?.none, X=$(V)", "X=$(V)");
    }

    #[test]
    fn what_is_missing_is_said_as_the_kubelet_says_it() {
        check("*map:none", "configmap \"none\" not found");
        check("V<secret:none.A", "secret \"none\" not found");
        check("V<map:m.none", "couldn't find key none in ConfigMap default/m");
        check("V<secret:s.none", "couldn't find key none in Secret default/s");
        check("V<map:other?.A", "object \"default\"/\"other\" not registered");
        check("V<map:unread?.A", "failed to sync configmap cache: timed out waiting for the condition");
    }

    #[test]
    fn fields_of_the_pod_and_the_node() {
        check("A<metadata.namespace, B<metadata.uid, C<spec.nodeName", "A=default, B=uid, C=node");
        check("A<spec.serviceAccountName, B<status.hostIP, C<status.hostIPs", "A=sa, B=10.0.0.1, C=10.0.0.1,fd00::1");
        check("A<status.podIP, B<status.podIPs", "A=10.88.0.5, B=10.88.0.5,fd00::5");
        check("A<metadata.labels['app'], B<metadata.annotations['example.com/note']", "A=web, B=x y");
        check("A<metadata.labels['none']", "A=");
        check("A<spec.hostname", "fieldRef \"spec.hostname\" is not supported for environment variables");
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        check("A<requests.cpu/1000, B<requests.cpu/1, C<requests.memory/1048576000", "A=1, B=100, C=64");
        check("A<requests.memory/1000, B<requests.memory/1073741824000", "A=67108864, B=1");
        check("A<limits.cpu/1, B<limits.cpu/1000, C<limits.memory/1048576000", "A=3500, B=4, C=7168");
        check("A<requests.hugepages-2Mi/1000, B<limits.gpu/1000", "resourceFieldRef \"limits.gpu\" is not supported");
    }

    #[test]
    fn values_of_files_take_their_turn() {
        let mut spec = fixtures::spec("always a");
        let file = |name: &str, optional: bool| EnvVar {
            name: name.into(),
            source: EnvSource::File { volume: "e".into(), path: "f.env".into(), key: "K".into(), optional },
        };
        let text =
            |name: &str, value: &str| EnvVar { name: name.into(), source: EnvSource::Value(Sensitive(value.into())) };
        spec.containers[0].env = vec![file("A", false), text("B", "$(A)-$(C)"), file("C", true), file("D", true)];
        let (node, machine) = (fixtures::node(), machine());
        let shown = |spec: &PodSpec, files: &[FileValue]| {
            let (objects, services) = (&Objects::default(), &Services::default());
            let context = EnvContext { spec, config: &node, machine: &machine, pod_ips: &[], files, objects, services };
            let vars = variables(&context, &spec.containers[0])?;
            Ok::<_, String>(vars.iter().map(|(n, v)| format!("{n}={}", v.0)).collect::<Vec<_>>().join(" "))
        };
        let found = |value: &str| Ok(Some(Sensitive(value.into())));
        assert_eq!(shown(&spec, &[found("1"), Ok(None), found("")]), Ok("A=1 B=1-$(C) D=".to_owned()));
        let file = "/r/pods/uid/volumes/kubernetes.io~empty-dir/e/f.env";
        let missing = Err(format!("environment variable key \"K\" not found in file {file:?}"));
        assert_eq!(shown(&spec, &[Ok(None), Ok(None), Ok(None)]), missing);
        let bad = Err("couldn't parse env file: at line 1".to_owned());
        assert_eq!(shown(&spec, &[found("1"), Err("at line 1".to_owned()), Ok(None)]), bad);
        let keys = file_keys(&spec, &spec.containers[0], &node);
        assert_eq!((keys.len(), keys[0].volume.as_str()), (3, "/r/pods/uid/volumes/kubernetes.io~empty-dir/e"));
    }
}
