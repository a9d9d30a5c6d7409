//! Resources in the text of a pod's object: taken out for state files and events, put in where others are allocated.

use components::quantity::{Format, Quantity};
use components::resize::{Size, SizeTexts};
use components::spec::{ContainerKind, PodSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The part of an object that is about resources.
#[derive(Deserialize, Default)]
struct Object<'a> {
    #[serde(borrow, default)]
    spec: ObjectSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ObjectSpec<'a> {
    #[serde(borrow, default)]
    init_containers: Vec<ObjectContainer<'a>>,
    #[serde(borrow, default)]
    containers: Vec<ObjectContainer<'a>>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ObjectContainer<'a> {
    name: String,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
}

/// Which containers may be resized.
pub(crate) const fn resizable(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::Init | ContainerKind::Sidecar | ContainerKind::Main)
}

/// The resources of a pod's object.
pub(crate) fn of_object(json: &str) -> SizeTexts {
    let object: Object<'_> = serde_json::from_str(json).unwrap_or_default();
    let text = |resources: Option<&RawValue>| resources.map_or("{}", RawValue::get).to_owned();
    let containers = object.spec.init_containers.into_iter().chain(object.spec.containers);
    SizeTexts {
        pod: object.spec.resources.map(|raw| raw.get().to_owned()),
        containers: containers.map(|container| (container.name, text(container.resources))).collect(),
    }
}

/// The resources of a pod with what is in force of CPU and memory.
pub(crate) fn with_sizes(spec: &PodSpec, in_force: impl Fn(usize) -> Option<Size>) -> SizeTexts {
    let mut texts = of_object(&spec.json);
    for (index, container) in spec.containers.iter().enumerate() {
        let allocated = Size::of_container(spec, index);
        let Some(size) = in_force(index).filter(|size| *size != allocated) else { continue };
        let Some(text) = texts.containers.get_mut(&*container.name) else { continue };
        let mut value: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
        let cpu = |milli| Quantity::from_milli(milli, Format::DecimalSi).to_string();
        let memory = |bytes| Quantity::from_units(bytes, Format::BinarySi).to_string();
        value["requests"]["cpu"] = cpu(size.cpu_request).into();
        value["requests"]["memory"] = memory(size.memory_request).into();
        value["limits"]["cpu"] = cpu(size.cpu_limit).into();
        value["limits"]["memory"] = memory(size.memory_limit).into();
        *text = value.to_string();
    }
    texts
}

/// The spec with other resources than its own; `None` when they are its own.
pub(crate) fn with_allocation(wanted: &PodSpec, texts: &SizeTexts) -> Option<PodSpec> {
    let mut spec = wanted.clone();
    let mut differs = false;
    for container in spec.containers.iter_mut().filter(|container| resizable(container.kind)) {
        let allocated = texts.containers.get(&*container.name).and_then(|text| podspec::resources_of(text));
        if let Some(allocated) = allocated.filter(|allocated| *allocated != container.resources) {
            container.resources = allocated;
            differs = true;
        }
    }
    let whole = texts.pod.as_ref().and_then(|text| podspec::resources_of(text));
    if whole != spec.resources {
        spec.resources = whole;
        differs = true;
    }
    if !differs {
        return None;
    }
    spec.json = with_texts(&wanted.json, texts)?;
    Some(spec)
}

/// The object with these resources.
fn with_texts(json: &str, texts: &SizeTexts) -> Option<Arc<str>> {
    let mut object: Value = serde_json::from_str(json).ok()?;
    let spec = object.get_mut("spec")?.as_object_mut()?;
    for group in ["initContainers", "containers"] {
        for container in spec.get_mut(group).and_then(Value::as_array_mut).into_iter().flatten() {
            let text = container.get("name").and_then(Value::as_str).and_then(|name| texts.containers.get(name));
            if let Some(resources) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
                container["resources"] = resources;
            }
        }
    }
    match texts.pod.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        Some(resources) => spec.insert("resources".to_owned(), resources),
        None => spec.remove("resources"),
    };
    Some(object.to_string().into())
}

/// What an event says of a resize: what is wanted of each container.
pub(crate) fn message(prefix: &str, spec: &PodSpec, generation: i64, error: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Said<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<SaidContainer<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<SaidContainer<'a>>,
        generation: i64,
        #[serde(skip_serializing_if = "str::is_empty")]
        error: &'a str,
    }
    #[derive(Serialize)]
    struct SaidContainer<'a> {
        name: &'a str,
        resources: BTreeMap<String, Value>,
    }
    let object: Object<'_> = serde_json::from_str(&spec.json).unwrap_or_default();
    fn said<'a>(list: &'a [ObjectContainer<'_>]) -> Vec<SaidContainer<'a>> {
        let parts = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        let one = |c: &'a ObjectContainer<'_>| SaidContainer {
            name: &c.name,
            resources: c.resources.map(parts).unwrap_or_default(),
        };
        list.iter().map(one).collect()
    }
    let said = Said {
        init_containers: said(&object.spec.init_containers),
        containers: said(&object.spec.containers),
        generation,
        error,
    };
    serde_json::to_string(&said).map_or_else(|_| prefix.to_owned(), |text| format!("{prefix}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// Container `a` requests 100m and may use 64Mi, `i` is an init container without resources.
    fn pod() -> PodSpec {
        let mut spec = fixtures::spec("always init:i a");
        let resources = json!({"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}});
        let object = json!({"metadata": {"generation": 3}, "spec": {
            "initContainers": [{"name": "i", "image": "x"}],
            "containers": [{"name": "a", "resources": resources, "image": "x"}],
        }});
        spec.json = object.to_string().into();
        spec.containers[1].resources = podspec::resources_of(&resources.to_string()).unwrap();
        spec
    }

    #[test]
    fn what_is_allocated_survives_a_change_of_what_is_wanted() {
        let old = pod();
        let texts = of_object(&old.json);
        assert_eq!(texts.containers["i"], "{}");
        assert!(with_allocation(&old, &texts).is_none(), "nothing differs");
        let mut wanted = pod();
        wanted.json = wanted.json.replace("100m", "300m").into();
        wanted.containers[1].resources.requests.cpu_milli = Some(300);
        let held = with_allocation(&wanted, &texts).unwrap();
        assert_eq!(held.containers, old.containers);
        assert_eq!(of_object(&held.json), texts);
        assert!(held.json.contains(r#""generation":3"#));
    }

    #[test]
    fn resources_of_the_pod_come_and_go() {
        let mut wanted = pod();
        let mut texts = of_object(&wanted.json);
        texts.pod = Some(r#"{"requests":{"cpu":"1"}}"#.to_owned());
        let held = with_allocation(&wanted, &texts).unwrap();
        assert_eq!(held.resources.as_ref().unwrap().requests.cpu_milli, Some(1000));
        assert!(held.json.contains(r#""resources":{"requests":{"cpu":"1"}}"#));
        wanted = held;
        texts.pod = None;
        assert!(!with_allocation(&wanted, &texts).unwrap().json.contains(r#"{"cpu":"1"}"#));
    }

    #[test]
    fn what_is_in_force_differs_by_container() {
        let spec = pod();
        assert_eq!(with_sizes(&spec, |_| None), of_object(&spec.json));
        let size = Size { cpu_request: 50, memory_request: 64 << 20, memory_limit: 32 << 20, cpu_limit: 0 };
        let texts = with_sizes(&spec, |index| Some(size).filter(|_| index == 1));
        let expect = r#"{"limits":{"cpu":"0","memory":"32Mi"},"requests":{"cpu":"50m","memory":"64Mi"}}"#;
        assert_eq!(texts.containers["a"], expect);
    }

    #[test]
    fn events_say_what_is_wanted() {
        let text = message("Pod resize started", &pod(), 3, "");
        let expect = concat!(
            r#"Pod resize started: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"a","#,
            r#""resources":{"limits":{"memory":"64Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}}],"generation":3}"#
        );
        assert_eq!(text, expect);
        assert!(message("p", &pod(), 3, "why").ends_with(r#","generation":3,"error":"why"}"#));
    }
}
