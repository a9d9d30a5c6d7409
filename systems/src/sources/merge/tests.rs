//! Tables: reads in, changes out.

use super::*;
use components::fnv::fnv1a_128;

fn item(digest: u128, status_digest: u128, deleting: bool) -> SourceItem {
    SourceItem { origin: "f".into(), index: 0, digest, status_digest, deleting, full_name: "n".to_owned() }
}

/// `uid=DIGEST[/STATUS][!]`, `!` for one that is asked to end.
fn items(text: &str) -> Items {
    let one = |word: &str| {
        let (uid, rest) = word.split_once('=').unwrap();
        let deleting = rest.ends_with('!');
        let (digest, status) = rest.trim_end_matches('!').split_once('/').unwrap_or((rest.trim_end_matches('!'), "0"));
        (PodUid::from(uid), item(digest.parse().unwrap(), status.parse().unwrap(), deleting))
    };
    text.split_whitespace().map(one).collect()
}

#[track_caller]
fn check(old: &str, new: &str, expect: &str) {
    let ops: Vec<String> =
        merge(&items(old), &items(new)).into_iter().map(|(op, uid)| format!("{op:?} {uid}")).collect();
    assert_eq!(ops.join(", "), expect);
}

#[test]
fn changes_between_two_reads() {
    check("", "", "");
    check("", "a=1", "Add a");
    check("a=1", "a=1", "");
    check("a=1", "a=2", "Update a");
    check("a=1", "", "Remove a");
    check("a=1/1", "a=1/2", "Reconcile a");
    check("a=1/1", "a=2/2", "Update a");
    check("a=1", "a=2!", "Delete a");
    check("a=1!", "a=1!", "");
    check("a=1!", "", "");
    check("a=1!", "a=2", "Add a");
    check("", "a=1!", "");
    check("a=1 b=1 c=1", "b=2 c=1 d=1 e=1", "Remove a, Add d, Add e, Update b");
}

/// A manifest `PATH[#INDEX] NAME [uid=UID] [v=CONTENT] [bad]`.
fn manifest(text: &str) -> Manifest {
    let mut words = text.split_whitespace();
    let place = words.next().unwrap();
    let (path, index) = place.split_once('#').unwrap_or((place, "0"));
    let name = words.next().unwrap();
    let (mut uid, mut content, mut image) = (String::new(), "", "busybox");
    for word in words {
        match word.split_once('=') {
            Some(("uid", value)) => uid = format!(r#","uid":"{value}""#),
            Some(("v", value)) => content = value,
            _ => image = "",
        }
    }
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"v":"{content}"}}{uid}}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
    );
    Manifest {
        origin: path.into(),
        index: index.parse().unwrap(),
        digest: fnv1a_128(json.as_bytes()),
        json: json.into(),
    }
}

struct Round {
    source: Source,
    items: Items,
    seen: BTreeMap<PodUid, Wall>,
}

impl Round {
    fn new(source: Source) -> Self {
        Self { source, items: Items::new(), seen: BTreeMap::new() }
    }

    fn judge(&self, now: i64, manifests: &str, problems: &str) -> Judged {
        let manifests: Vec<Manifest> =
            manifests.lines().map(str::trim).filter(|l| !l.is_empty()).map(manifest).collect();
        let problem = |origin: &str| ManifestProblem { origin: origin.into(), message: "broken".to_owned() };
        let problems: Vec<ManifestProblem> = problems.split_whitespace().map(problem).collect();
        let read = Read {
            source: self.source,
            node_name: "lab",
            now: Wall(now),
            old: &self.items,
            manifests: &manifests,
            problems: &problems,
        };
        judge(&read, |uid| self.seen.get(uid).copied(), |uid| (uid.as_str() == "elsewhere").then_some(Source::Api))
    }

    /// Reads and tells the pods' places and what was complained about; then what changed.
    #[track_caller]
    fn check(&mut self, manifests: &str, problems: &str, expect: &str, complaints: &[&str], changes: &str) -> Judged {
        let judged = self.judge(0, manifests, problems);
        let mut found: Vec<String> = judged
            .items
            .values()
            .map(|item| format!("{}#{} {}", item.origin, item.index, item.full_name.trim_end_matches("-lab_default")))
            .collect();
        found.sort();
        assert_eq!(found.join(", "), expect);
        let said: Vec<String> = judged.complaints.iter().map(|(origin, what)| format!("{origin}: {what}")).collect();
        assert_eq!(said.len(), complaints.len(), "{said:#?}");
        for (said, expect) in said.iter().zip(complaints) {
            assert!(said.starts_with(expect), "{said:?} should begin with {expect:?}");
        }
        let mut ops: Vec<String> = merge(&self.items, &judged.items).iter().map(|(op, _)| format!("{op:?}")).collect();
        ops.sort();
        assert_eq!(ops.join(" "), changes);
        self.items = judged.items.clone();
        judged
    }
}

#[test]
fn a_bad_file_keeps_its_pods_and_disturbs_no_other() {
    let mut round = Round::new(Source::File);
    round.check("a web\n b db", "", "a#0 web, b#0 db", &[], "Add Add");
    // Unreadable, then refused, then readable with another content beside a new file.
    round.check("b db", "a", "a#0 web, b#0 db", &["a: broken"], "");
    round.check("a web bad\n b db", "", "a#0 web, b#0 db", &["a: spec.containers[0].image: Required value"], "");
    round.check("a web v=2\n b db\n c new", "", "a#0 web, b#0 db, c#0 new", &[], "Add Add Remove");
    round.check("b db", "c", "b#0 db, c#0 new", &["c: broken"], "Remove");
    round.check("b db", "", "b#0 db", &[], "Remove");
    round.check("b db", "never-good", "b#0 db", &["never-good: broken"], "");
}

#[test]
fn one_bad_object_keeps_the_whole_file() {
    let mut round = Round::new(Source::File);
    round.check("a#0 x\n a#1 y", "", "a#0 x, a#1 y", &[], "Add Add");
    round.check("a#0 x v=2\n a#1 y bad", "", "a#0 x, a#1 y", &["a: spec.containers[0].image"], "");
}

#[test]
fn a_problem_beside_objects_is_only_said() {
    let mut round = Round::new(Source::File);
    round.check("a web", "", "a#0 web", &[], "Add");
    round.check("a web v=2", "a", "a#0 web", &["a: broken"], "Add Remove");
}

#[test]
fn what_a_url_no_longer_holds_is_gone_unless_the_answer_is_refused() {
    let mut round = Round::new(Source::Http);
    round.check("u#0 x\n u#1 y", "", "u#0 x, u#1 y", &[], "Add Add");
    round.check("u#0 x v=2\n u#1 y bad", "", "u#0 x, u#1 y", &["u: spec.containers[0].image"], "");
    round.check("", "u", "", &["u: broken"], "Remove Remove");
}

#[test]
fn the_last_file_with_a_name_counts() {
    let mut round = Round::new(Source::File);
    round.check("web.yaml web", "", "web.yaml#0 web", &[], "Add");
    let both = "web.yaml web\n web.yaml.bak web v=3";
    let left_out = ["web.yaml: pod web-lab_default is left out: web.yaml.bak defines it as well"];
    round.check(both, "", "web.yaml.bak#0 web", &left_out, "Add Remove");
    round.check(both, "", "web.yaml.bak#0 web", &left_out, "");
    round.check("web.yaml web", "", "web.yaml#0 web", &[], "Add Remove");
}

#[test]
fn the_last_object_with_a_uid_counts() {
    let mut round = Round::new(Source::File);
    let left_out = ["a: pod x-lab_default is left out: b has the same uid"];
    round.check("a x uid=1\n b y uid=1", "", "b#0 y", &left_out, "Add");
    round.check("a x uid=1", "", "a#0 x", &[], "Update");
}

#[test]
fn a_uid_of_another_source_is_left_alone() {
    let mut round = Round::new(Source::File);
    round.check(
        "a x uid=elsewhere",
        "",
        "",
        &["a: pod x-lab_default is left out: its uid is in use by source api"],
        "",
    );
}

#[test]
fn a_fixed_uid_is_updated_in_place_and_keeps_when_it_was_seen() {
    let mut round = Round::new(Source::File);
    let first = round.check("a web uid=7", "", "a#0 web", &[], "Add");
    assert_eq!(first.specs[&PodUid::from("7")].seen, Wall(0));
    round.seen.insert(PodUid::from("7"), Wall(5_000_000_000));
    let next = round.check("a web uid=7 v=2", "", "a#0 web", &[], "Update");
    let spec = &next.specs[&PodUid::from("7")];
    assert_eq!(spec.seen, Wall(5_000_000_000));
    assert_eq!(spec.annotations["kubernetes.io/config.seen"], "1970-01-01T00:00:05Z");
    // Moving the file changes nothing for a pod with its own uid.
    round.check("b web uid=7 v=2", "", "b#0 web", &[], "");
}

#[test]
fn an_unchanged_object_is_not_compiled_again() {
    let mut round = Round::new(Source::File);
    assert_eq!(round.check("a web", "", "a#0 web", &[], "Add").specs.len(), 1);
    assert_eq!(round.check("a web\n b db", "", "a#0 web, b#0 db", &[], "Add").specs.len(), 1);
}
