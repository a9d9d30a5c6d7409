//! Our `.proto` files against the published ones: each name, number, type and label that we use must be theirs.
//! The published module is read from the folder in `TICKLET_CRI_API_DIR` (`cargo xtask test` sets it).

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeMap;
use std::path::Path;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use proto_codegen::{APIS, compile, compile_file};

/// One line per fact of the wire: what it is about → its value.
type Facts = BTreeMap<String, String>;

fn facts(set: &FileDescriptorSet) -> Facts {
    let mut facts = Facts::new();
    for file in &set.file {
        let package = format!(".{}", file.package());
        for message in &file.message_type {
            message_facts(&package, message, &mut facts);
        }
        for item in &file.enum_type {
            enum_facts(&package, item, &mut facts);
        }
        for service in &file.service {
            for method in &service.method {
                let shape = format!(
                    "{}{} -> {}{}",
                    if method.client_streaming() { "stream " } else { "" },
                    method.input_type(),
                    if method.server_streaming() { "stream " } else { "" },
                    method.output_type()
                );
                facts.insert(format!("rpc {package}.{}/{}", service.name(), method.name()), shape);
            }
        }
    }
    facts
}

fn message_facts(parent: &str, message: &DescriptorProto, facts: &mut Facts) {
    let name = format!("{parent}.{}", message.name());
    facts.insert(format!("message {name}"), String::new());
    for field in &message.field {
        facts.insert(format!("field {name}.{}", field.name()), field_fact(field));
    }
    for item in &message.enum_type {
        enum_facts(&name, item, facts);
    }
    for nested in &message.nested_type {
        message_facts(&name, nested, facts);
    }
}

fn field_fact(field: &FieldDescriptorProto) -> String {
    let kind = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_string(),
        scalar => scalar.as_str_name().to_string(),
    };
    let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
    let oneof = if field.oneof_index.is_some() { " in a oneof" } else { "" };
    format!("{repeated}{kind} = {}{oneof}", field.number())
}

fn enum_facts(parent: &str, item: &EnumDescriptorProto, facts: &mut Facts) {
    let name = format!("{parent}.{}", item.name());
    facts.insert(format!("enum {name}"), String::new());
    for value in &item.value {
        facts.insert(format!("value {name}.{}", value.name()), value.number().to_string());
    }
}

/// Our facts that the published file does not state, or states otherwise.
fn contradictions(ours: &Facts, published: &Facts) -> Vec<String> {
    ours.iter()
        .filter_map(|(what, value)| match published.get(what) {
            Some(theirs) if theirs == value => None,
            Some(theirs) => Some(format!("{what}: ours `{value}`, published `{theirs}`")),
            None => Some(format!("{what}: not published")),
        })
        .collect()
}

fn our_set() -> FileDescriptorSet {
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &APIS[0]).unwrap()
}

#[test]
fn every_wire_fact_of_ours_is_published() {
    let Some(module) = std::env::var_os("TICKLET_CRI_API_DIR") else {
        println!("not compared: TICKLET_CRI_API_DIR is not set");
        return;
    };
    let folder = Path::new(&module).join("pkg/apis/runtime/v1");
    let published = facts(&compile_file(&folder.join("api.proto"), &folder).unwrap());
    let ours = facts(&our_set());
    assert!(ours.len() > 500, "only {} facts", ours.len());
    let wrong = contradictions(&ours, &published);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("compared {} wire facts of ours with {} published ones", ours.len(), published.len());
}

#[test]
fn the_comparison_sees_each_kind_of_mistake() {
    let right = facts(&our_set());
    let check = |planted: fn(&mut FileDescriptorSet), expect: &str| {
        let mut set = our_set();
        planted(&mut set);
        let found = contradictions(&facts(&set), &right).join("\n");
        assert!(found.contains(expect), "expected `{expect}` in `{found}`");
    };
    check(
        |set| message(set, "VersionRequest").field[0].number = Some(2),
        "field .runtime.v1.VersionRequest.version: ours `TYPE_STRING = 2`, published `TYPE_STRING = 1`",
    );
    check(|set| message(set, "VersionRequest").field[0].name = Some("v".into()), "VersionRequest.v: not published");
    check(
        |set| message(set, "ExecSyncResponse").field[0].set_type(Type::String),
        "ours `TYPE_STRING = 1`, published `TYPE_BYTES = 1`",
    );
    check(
        |set| message(set, "DNSConfig").field[0].set_label(Label::Optional),
        "ours `TYPE_STRING = 1`, published `repeated TYPE_STRING = 1`",
    );
    check(
        |set| message(set, "ContainerConfig").field[0].type_name = Some(".runtime.v1.PodSandboxMetadata".into()),
        "ours `.runtime.v1.PodSandboxMetadata = 1`",
    );
    check(|set| container_state(set).value[1].number = Some(9), "CONTAINER_RUNNING: ours `9`, published `1`");
    check(
        |set| {
            let service = set.file.iter_mut().find_map(|file| file.service.first_mut()).unwrap();
            service.method[0].server_streaming = Some(true);
        },
        "rpc .runtime.v1.RuntimeService/Version: ours",
    );
}

fn message<'a>(set: &'a mut FileDescriptorSet, name: &str) -> &'a mut DescriptorProto {
    set.file.iter_mut().flat_map(|file| &mut file.message_type).find(|message| message.name() == name).unwrap()
}

fn container_state(set: &mut FileDescriptorSet) -> &mut EnumDescriptorProto {
    let mut enums = set.file.iter_mut().flat_map(|file| &mut file.enum_type);
    enums.find(|item| item.name() == "ContainerState").unwrap()
}
