//! The generated pods and the oracle: what becomes of each, worked out from its plan alone, by nothing that the
//! implementation uses.

use serde_json::{Value, json};

/// Grace period of every pod, in seconds.
pub(crate) const GRACE: u64 = 8;

/// What a main container does when left alone. All know SIGTERM unless they are deaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Does {
    Serves,
    /// Ends with this code after three seconds.
    Ends(i32),
}

/// The hook of the first main container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hook {
    None,
    /// preStop of two seconds.
    PreStop,
    /// preStop that never ends.
    PreStopHangs,
    /// postStart of one second.
    PostStart,
    /// postStart that fails.
    PostStartFails,
}

/// One pod.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) policy: &'static str,
    /// Exit codes of the init containers, in order.
    pub(crate) init: Vec<i32>,
    pub(crate) sidecars: usize,
    pub(crate) main: Vec<Does>,
    pub(crate) hook: Hook,
    /// Main containers do not hear SIGTERM.
    pub(crate) deaf: bool,
}

/// What is expected of a pod that was left alone for long enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    pub(crate) phase: &'static str,
    /// For each main container: it runs all the time, without a restart.
    pub(crate) serves: Vec<bool>,
    /// For each main container: it is restarted again and again.
    pub(crate) loops: Vec<bool>,
    /// For each main container that ended for good: its exit code.
    pub(crate) code: Vec<Option<i32>>,
    /// The main containers were started.
    pub(crate) started: bool,
    /// The init container that fails is tried again.
    pub(crate) init_loops: bool,
    /// Seconds from the pod's removal to the stop signal of the first main container, where it serves.
    pub(crate) signal: Option<u64>,
    /// Seconds from the removal within which nothing of it runs.
    pub(crate) gone: u64,
}

/// Every combination.
pub(crate) fn all() -> Vec<Case> {
    let mains: [&[Does]; 5] = [
        &[Does::Serves],
        &[Does::Ends(0)],
        &[Does::Ends(1)],
        &[Does::Serves, Does::Ends(0)],
        &[Does::Ends(0), Does::Ends(1)],
    ];
    let inits: [&[i32]; 4] = [&[], &[0], &[0, 0], &[0, 1]];
    let hooks = [Hook::None, Hook::PreStop, Hook::PreStopHangs, Hook::PostStart, Hook::PostStartFails];
    let mut cases = Vec::new();
    for main in mains {
        for init in inits {
            for sidecars in 0..3 {
                for policy in ["Always", "OnFailure", "Never"] {
                    for hook in hooks {
                        let n = cases.len();
                        cases.push(Case {
                            name: format!("m{n}"),
                            policy,
                            init: init.to_vec(),
                            sidecars,
                            main: main.to_vec(),
                            hook,
                            // Each combination comes with one of both; neighbours differ.
                            deaf: (n / 5) % 2 == 1,
                        });
                    }
                }
            }
        }
    }
    cases
}

impl Case {
    /// Its manifest.
    pub(crate) fn manifest(&self, image: &str) -> Value {
        let shell = |name: String, script: String| json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]});
        let wait = "while :; do sleep 1; done";
        let sidecar = |n: usize| {
            let mut container = shell(format!("s{n}"), format!("trap 'exit 0' TERM; {wait}"));
            container["restartPolicy"] = json!("Always");
            container
        };
        let mut init: Vec<Value> = (0..self.sidecars).map(sidecar).collect();
        init.extend(
            self.init.iter().enumerate().map(|(n, code)| shell(format!("i{n}"), format!("sleep 1; exit {code}"))),
        );
        let trap = if self.deaf { "trap '' TERM" } else { "trap 'exit 0' TERM" };
        let mut main: Vec<Value> = self
            .main
            .iter()
            .enumerate()
            .map(|(n, does)| {
                let script = match does {
                    Does::Serves => format!("{trap}; {wait}"),
                    Does::Ends(code) => format!("{trap}; sleep 3; exit {code}"),
                };
                shell(format!("c{n}"), script)
            })
            .collect();
        let exec = |command: &[&str]| json!({"exec": {"command": command}});
        match self.hook {
            Hook::None => {}
            Hook::PreStop => main[0]["lifecycle"] = json!({"preStop": exec(&["sleep", "2"])}),
            Hook::PreStopHangs => main[0]["lifecycle"] = json!({"preStop": exec(&["sleep", "9999"])}),
            Hook::PostStart => main[0]["lifecycle"] = json!({"postStart": exec(&["sleep", "1"])}),
            Hook::PostStartFails => main[0]["lifecycle"] = json!({"postStart": exec(&["false"])}),
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": "default", "uid": format!("uid-{}", self.name)},
            "spec": {
                "restartPolicy": self.policy,
                "terminationGracePeriodSeconds": GRACE,
                "initContainers": init,
                "containers": main,
            },
        })
    }

    fn restarts(&self, code: i32) -> bool {
        self.policy == "Always" || (self.policy == "OnFailure" && code != 0)
    }

    /// The code with which a main container ends; `None` when it does not end.
    fn code(&self, n: usize) -> Option<i32> {
        let refused = n == 0 && self.hook == Hook::PostStartFails;
        match self.main[n] {
            // Stopped at once because of its hook: by its handler, or by force.
            _ if refused && !self.deaf => Some(0),
            Does::Serves if refused => Some(137),
            Does::Serves => None,
            Does::Ends(code) => Some(code),
        }
    }

    /// What is to become of it.
    pub(crate) fn expected(&self) -> Expected {
        let failing = self.init.iter().any(|code| *code != 0);
        let none = vec![false; self.main.len()];
        if failing {
            let loops = self.policy != "Never";
            return Expected {
                phase: if loops { "Pending" } else { "Failed" },
                serves: none.clone(),
                loops: none,
                code: vec![None; self.main.len()],
                started: false,
                init_loops: loops,
                signal: None,
                gone: 5,
            };
        }
        let codes: Vec<Option<i32>> = (0..self.main.len()).map(|n| self.code(n)).collect();
        let loops: Vec<bool> = codes.iter().map(|code| code.is_some_and(|code| self.restarts(code))).collect();
        let serves: Vec<bool> = codes.iter().map(Option::is_none).collect();
        let phase = if serves.contains(&true) || loops.contains(&true) {
            "Running"
        } else if codes.iter().all(|code| *code == Some(0)) {
            "Succeeded"
        } else {
            "Failed"
        };
        let signal = serves[0].then_some(match self.hook {
            Hook::PreStop => 2,
            Hook::PreStopHangs => GRACE,
            _ => 0,
        });
        // A deaf one uses the grace period up, and with a hook that hangs two seconds more.
        let longest = if self.deaf || self.hook == Hook::PreStopHangs { GRACE + 2 } else { signal.unwrap_or(0) + 3 };
        Expected {
            phase,
            code: codes.iter().zip(&loops).map(|(code, loops)| code.filter(|_| !loops)).collect(),
            serves,
            loops,
            started: true,
            init_loops: false,
            signal,
            gone: longest + 3,
        }
    }
}

/// Every thirtieth: the pods that are played on a real runtime too. It is odd against the length of every axis, so that
/// each value of each axis is among them.
pub(crate) fn sample() -> Vec<Case> {
    let all = all();
    let step = all.len() / 30;
    let step = if step.is_multiple_of(2) { step - 1 } else { step };
    all.into_iter().step_by(step).take(30).collect()
}
