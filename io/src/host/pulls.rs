//! Records of image pulls, in the files that the kubelet keeps below `image_manager`: `pulling` holds intents, `pulled`
//! what was pulled with whose credentials. A credential is only there as a hash.

use super::HostError;
use crate::store::replace_file;
use components::edge::host::pulls::{
    Access, Compared, Coordinates, Credential, Proof, PulledImage, PullsAnswer, PullsEffect, RecordPull,
};
use components::time::Wall;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Version that is written.
const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Versions that are read.
const VERSIONS: [&str; 2] = [VERSION, "kubelet.config.k8s.io/v1alpha1"];
/// Longest file that is read.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct IntentFile {
    kind: String,
    api_version: String,
    image: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecordFile {
    kind: String,
    api_version: String,
    last_updated_time: Option<String>,
    image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: BTreeMap<String, Credentials>,
}

#[derive(Serialize, Deserialize, Default, Clone, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Credentials {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<AccountEntry>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SecretEntry {
    uid: String,
    namespace: String,
    name: String,
    credential_hash: String,
}

#[derive(Serialize, Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
struct AccountEntry {
    uid: String,
    namespace: String,
    name: String,
}

/// Records are read, changed and written again: one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Runs one work.
pub(super) fn run(effect: &PullsEffect) -> Result<Option<PullsAnswer>, HostError> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match effect {
        PullsEffect::Read { dir } => read(Path::new(dir)).map(Some),
        PullsEffect::WriteIntent { dir, image } => write_intent(dir, image).map(|()| None),
        PullsEffect::DropIntent { dir, image } => remove(&place(dir, "pulling", image)).map(|()| None),
        PullsEffect::Record(record) => add(record).map(|image| Some(PullsAnswer::Recorded(image))),
        PullsEffect::Compare { dir, image_ref, name, credentials } => {
            Ok(Some(PullsAnswer::Compared(compare(&place(dir, "pulled", image_ref), name, credentials))))
        }
        PullsEffect::Prune { dir, image_refs } => {
            image_refs.iter().try_for_each(|image_ref| remove(&place(dir, "pulled", image_ref))).map(|()| None)
        }
    }
}

/// The file of an image.
fn place(dir: &str, kind: &str, image: &str) -> PathBuf {
    Path::new(dir).join(kind).join(file_name(image))
}

fn file_name(image: &str) -> String {
    format!("sha256-{}", hex(image.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a credential, as the kubelet writes it.
fn hash(credential: &Credential) -> String {
    let fields = [("username", &credential.username), ("password", &credential.password), ("email", &credential.email)];
    let given = fields.iter().filter(|(_, value)| !value.0.is_empty());
    let texts: Vec<String> = given.map(|(name, value)| format!("\"{name}\":{}", go_text(&value.0))).collect();
    hex(format!("{{{}}}", texts.join(",")).as_bytes())
}

/// A text in JSON as Go writes it: with what HTML gives a meaning escaped.
fn go_text(text: &str) -> String {
    let mut out = serde_json::Value::from(text).to_string();
    let special =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    for (from, to) in special {
        out = out.replace(from, to);
    }
    out
}

fn make_dirs(dir: &Path) -> Result<(), HostError> {
    for kind in ["pulling", "pulled"] {
        let path = dir.join(kind);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| HostError::io("make", &path, &error))?;
    }
    Ok(())
}

fn read(dir: &Path) -> Result<PullsAnswer, HostError> {
    make_dirs(dir)?;
    let (mut records, mut intents, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let mut unreadable = 0;
    for path in files(&dir.join("pulled"))? {
        match load(&path) {
            Ok(file) => records.push(shown(&file)),
            Err(why) => {
                unreadable += 1;
                problems.push(format!("{}: {why}", path.display()));
            }
        }
    }
    for path in files(&dir.join("pulling"))? {
        match load_intent(&path) {
            Ok(image) => intents.push(image),
            Err(why) => problems.push(format!("{}: {why}", path.display())),
        }
    }
    records.sort_by(|a, b| a.image_ref.cmp(&b.image_ref));
    intents.sort();
    Ok(PullsAnswer::Read { records, intents, unreadable, problems })
}

/// The record files of a directory; half-written ones and strangers are left out.
fn files(dir: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed = |error: io::Error| HostError::io("read", dir, &error);
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let own =
            name.to_str().is_some_and(|name| name.strip_prefix("sha256-").is_some_and(|rest| !rest.contains('.')));
        if own && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            out.push(entry.path());
        }
    }
    out.sort();
    Ok(out)
}

fn text(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes, more than {MAX_BYTES}"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

fn load(path: &Path) -> Result<RecordFile, String> {
    let file: RecordFile = serde_json::from_str(&text(path)?).map_err(|error| error.to_string())?;
    if file.kind != "ImagePulledRecord" || !VERSIONS.contains(&file.api_version.as_str()) {
        return Err(format!("is no ImagePulledRecord of {VERSION}"));
    }
    if path.file_name().is_none_or(|name| *name != *file_name(&file.image_ref)) {
        return Err("is not named after its image".to_owned());
    }
    Ok(file)
}

fn load_intent(path: &Path) -> Result<String, String> {
    let file: IntentFile = serde_json::from_str(&text(path)?).map_err(|error| error.to_string())?;
    if file.kind != "ImagePullIntent" || !VERSIONS.contains(&file.api_version.as_str()) {
        return Err(format!("is no ImagePullIntent of {VERSION}"));
    }
    if path.file_name().is_none_or(|name| *name != *file_name(&file.image)) {
        return Err("is not named after its image".to_owned());
    }
    Ok(file.image)
}

/// What the core is told of a record.
fn shown(file: &RecordFile) -> PulledImage {
    let of = |uid: &String, namespace: &String, name: &String| Coordinates {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
    };
    let access = |it: &Credentials| Access {
        everyone: it.node_pods_accessible,
        secrets: it.kubernetes_secrets.iter().map(|s| of(&s.uid, &s.namespace, &s.name)).collect(),
        accounts: it.kubernetes_service_accounts.iter().map(|s| of(&s.uid, &s.namespace, &s.name)).collect(),
    };
    PulledImage {
        image_ref: Arc::from(file.image_ref.as_str()),
        updated: file.last_updated_time.as_deref().and_then(Wall::from_rfc3339).unwrap_or_default(),
        names: file.credential_mapping.iter().map(|(name, it)| (name.clone(), access(it))).collect(),
    }
}

fn write_intent(dir: &str, image: &str) -> Result<(), HostError> {
    let file =
        IntentFile { kind: "ImagePullIntent".to_owned(), api_version: VERSION.to_owned(), image: image.to_owned() };
    write(Path::new(dir), "pulling", image, &file)
}

/// Writes as the kubelet does: JSON in one line, its end included.
fn write(dir: &Path, kind: &str, image: &str, file: &impl Serialize) -> Result<(), HostError> {
    make_dirs(dir)?;
    let (dir, name) = (dir.join(kind), file_name(image));
    let failed = |error: io::Error| HostError::io("write", &dir.join(&name), &error);
    let text = serde_json::to_string(file).map_err(|error| failed(error.into()))?;
    replace_file(&dir, &name, 0o600, format!("{text}\n").as_bytes())
        .map(drop)
        .map_err(|error| failed(io::Error::other(error)))
}

fn remove(path: &Path) -> Result<(), HostError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(HostError::io("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Adds to a record, writes it if it became another, and drops the intent.
fn add(asked: &RecordPull) -> Result<PulledImage, HostError> {
    let path = place(&asked.dir, "pulled", &asked.image_ref);
    // One that cannot be read is written anew.
    let old = load(&path).ok();
    let fresh = old.is_none();
    let mut file = old.unwrap_or_else(|| RecordFile {
        kind: "ImagePulledRecord".to_owned(),
        api_version: VERSION.to_owned(),
        last_updated_time: None,
        image_ref: asked.image_ref.to_string(),
        credential_mapping: BTreeMap::new(),
    });
    let changed = asked.proof.as_ref().is_some_and(|proof| {
        let known = file.credential_mapping.get(&asked.name).cloned().unwrap_or_default();
        let merged = merged(known.clone(), proof);
        let changed = merged != known;
        if changed {
            file.credential_mapping.insert(asked.name.clone(), merged);
        }
        changed
    });
    if fresh || changed {
        VERSION.clone_into(&mut file.api_version);
        file.last_updated_time = Some(asked.at.rfc3339());
        write(Path::new(&asked.dir), "pulled", &asked.image_ref, &file)?;
    }
    if let Some(image) = &asked.intent {
        remove(&place(&asked.dir, "pulling", image))?;
    }
    Ok(shown(&file))
}

/// The credentials with one more proof.
fn merged(mut known: Credentials, proof: &Proof) -> Credentials {
    if known.node_pods_accessible {
        return known;
    }
    match proof {
        Proof::Everyone => return Credentials { node_pods_accessible: true, ..Credentials::default() },
        Proof::Secret { of, credential } => {
            let same = |s: &SecretEntry| s.uid == of.uid && s.namespace == of.namespace && s.name == of.name;
            let entry = SecretEntry {
                uid: of.uid.clone(),
                namespace: of.namespace.clone(),
                name: of.name.clone(),
                credential_hash: hash(credential),
            };
            known.kubernetes_secrets.retain(|s| !same(s));
            known.kubernetes_secrets.push(entry);
            known
                .kubernetes_secrets
                .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        }
        Proof::Account(of) => {
            let entry = AccountEntry { uid: of.uid.clone(), namespace: of.namespace.clone(), name: of.name.clone() };
            if !known.kubernetes_service_accounts.contains(&entry) {
                known.kubernetes_service_accounts.push(entry);
            }
            known
                .kubernetes_service_accounts
                .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        }
    }
    known
}

fn compare(path: &Path, name: &str, credentials: &[Credential]) -> Compared {
    if !path.exists() {
        return Compared::default();
    }
    let Ok(file) = load(path) else { return Compared { unreadable: true, known: None } };
    let recorded = file.credential_mapping.get(name).map_or(&[][..], |known| known.kubernetes_secrets.as_slice());
    let known = credentials.iter().position(|credential| {
        let hash = hash(credential);
        recorded.iter().any(|secret| secret.credential_hash == hash)
    });
    Compared { unreadable: false, known: known.and_then(|at| u32::try_from(at).ok()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kubelet wrote after a pull with a secret.
    const WRITTEN: &str = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"sha256:1","credentialMapping":{"reg/app":{"kubernetesSecrets":[{"uid":"u","namespace":"default","name":"login","credentialHash":"41ce05aa5b4341aeae05d48e33fdbda6bac6a6bd1d6d05ea44b5a0b0e2ca6a0b"}]}}}
"#;

    fn credential(user: &str, password: &str, email: &str) -> Credential {
        Credential { username: user.into(), password: password.into(), email: email.into() }
    }

    fn of(name: &str) -> Coordinates {
        Coordinates { namespace: "default".to_owned(), name: name.to_owned(), uid: "u".to_owned() }
    }

    struct Rig(tempfile::TempDir);

    impl Rig {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn dir(&self) -> String {
            self.0.path().join("image_manager").display().to_string()
        }

        fn record(&self, proof: Option<Proof>) -> PulledImage {
            let asked = RecordPull {
                dir: self.dir(),
                image_ref: "sha256:1".into(),
                name: "reg/app".to_owned(),
                proof,
                at: Wall::from_rfc3339("2024-10-21T12:26:40Z").unwrap(),
                intent: Some("reg/app:1".to_owned()),
            };
            let Some(PullsAnswer::Recorded(image)) = run(&PullsEffect::Record(Box::new(asked))).unwrap() else {
                panic!("no record")
            };
            image
        }

        fn read(&self) -> (Vec<PulledImage>, Vec<String>, u32) {
            let Some(PullsAnswer::Read { records, intents, unreadable, problems }) =
                run(&PullsEffect::Read { dir: self.dir() }).unwrap()
            else {
                panic!("nothing read")
            };
            assert!(problems.iter().all(|why| !why.contains("geheim")), "{problems:?}");
            (records, intents, unreadable)
        }

        fn text(&self) -> String {
            fs::read_to_string(place(&self.dir(), "pulled", "sha256:1")).unwrap()
        }

        fn compare(&self, all: &[Credential]) -> Compared {
            compare(&place(&self.dir(), "pulled", "sha256:1"), "reg/app", all)
        }
    }

    #[test]
    fn hashes_and_names_are_the_kubelets() {
        assert_eq!(
            file_name("test-brokenhash"),
            "sha256-38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd"
        );
        assert_eq!(go_text("a<b>&\"\u{2028}"), "\"a\\u003cb\\u003e\\u0026\\\"\\u2028\"");
        assert_eq!(hash(&credential("u", "p", "")), hex(br#"{"username":"u","password":"p"}"#));
        assert_eq!(hash(&credential("u", "", "e@x")), hex(br#"{"username":"u","email":"e@x"}"#));
    }

    #[test]
    fn an_intent_is_there_until_the_record_is() {
        let rig = Rig::new();
        let intent = PullsEffect::WriteIntent { dir: rig.dir(), image: "reg/app:1".to_owned() };
        assert_eq!(run(&intent).unwrap(), None);
        assert_eq!(run(&intent).unwrap(), None);
        let path = place(&rig.dir(), "pulling", "reg/app:1");
        let text = fs::read_to_string(&path).unwrap();
        let expect = r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"reg/app:1"}"#;
        assert_eq!(text, format!("{expect}\n"));
        assert_eq!(rig.read().1, ["reg/app:1"]);
        rig.record(None);
        assert!(!path.exists());
        run(&PullsEffect::DropIntent { dir: rig.dir(), image: "reg/app:1".to_owned() }).unwrap();
        assert_eq!(rig.read().1, [""; 0]);
    }

    #[test]
    fn a_record_grows_and_holds_no_secret() {
        let rig = Rig::new();
        assert_eq!(rig.record(None).names, BTreeMap::new());
        assert!(rig.text().ends_with("\"imageRef\":\"sha256:1\"}\n"), "{}", rig.text());
        let secret = |name, password| Proof::Secret { of: of(name), credential: credential("u", password, "") };
        rig.record(Some(secret("login", "geheim")));
        let image = rig.record(Some(secret("also", "geheim2")));
        assert_eq!(image.names["reg/app"].secrets, [of("also"), of("login")]);
        assert!(!rig.text().contains("geheim"), "{}", rig.text());
        assert_eq!(rig.compare(&[credential("u", "no", ""), credential("u", "geheim", "")]).known, Some(1));
        assert_eq!(rig.compare(&[credential("u", "no", "")]), Compared::default());
        // Another content of the same secret takes the place of the old one.
        rig.record(Some(secret("login", "new")));
        assert_eq!(rig.compare(&[credential("u", "geheim", "")]).known, None);
        let image = rig.record(Some(Proof::Account(of("robot"))));
        assert_eq!(image.names["reg/app"].accounts, [of("robot")]);
        // Once everyone may use it, nothing else counts.
        let image = rig.record(Some(Proof::Everyone));
        assert_eq!(image.names["reg/app"], Access { everyone: true, ..Access::default() });
        let text = rig.text();
        rig.record(Some(secret("login", "geheim")));
        assert_eq!(rig.text(), text);
        assert_eq!(rig.read().0, [image]);
        run(&PullsEffect::Prune { dir: rig.dir(), image_refs: vec!["sha256:1".into(), "gone".into()] }).unwrap();
        assert_eq!(rig.read().0, []);
    }

    #[test]
    fn records_of_a_kubelet_are_read_and_bad_ones_named() {
        let rig = Rig::new();
        assert_eq!(rig.read(), (Vec::new(), Vec::new(), 0));
        let path = place(&rig.dir(), "pulled", "sha256:1");
        fs::write(&path, WRITTEN).unwrap();
        let image = rig.read().0.remove(0);
        assert_eq!(image.names["reg/app"].secrets, [of("login")]);
        assert_eq!(image.updated.rfc3339(), "2024-10-21T12:26:40Z");
        // What did not change is not written.
        let file = load(&path).unwrap();
        assert_eq!(format!("{}\n", serde_json::to_string(&file).unwrap()), WRITTEN);
        fs::write(&path, WRITTEN.replace("v1beta1", "v1alpha1")).unwrap();
        assert_eq!(rig.read().0.len(), 1);
        for bad in [
            WRITTEN.replace("v1beta1", "v9"),
            WRITTEN.replace("sha256:1", "sha256:2"),
            WRITTEN.replace("\"uid\"", "\"other\""),
            "geheim".to_owned(),
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(rig.read(), (Vec::new(), Vec::new(), 1));
            assert!(rig.compare(&[]).unreadable);
        }
        // Half-written files are nobody's.
        fs::rename(&path, path.with_extension("tmp")).unwrap();
        assert_eq!(rig.read(), (Vec::new(), Vec::new(), 0));
    }
}
