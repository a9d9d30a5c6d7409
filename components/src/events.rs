//! What is worth telling the cluster about a pod: noted by the domain that saw it, sent by `systems::events`.

use std::borrow::Cow;

/// One event of a pod or of one of its containers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodEvent {
    /// Type `Warning` instead of `Normal`.
    pub warning: bool,
    /// Reason, as Kubernetes spells it.
    pub reason: Cow<'static, str>,
    /// Text for people; without secrets.
    pub message: String,
    /// Index of the container it is about, in the order of the compiled spec.
    pub container: Option<u16>,
}

/// Events of one pod that wait to be sent; bounded, because what repeats says nothing new.
#[derive(Default, Debug)]
pub struct PodEvents(Vec<PodEvent>);

/// Events of one pod kept between two ticks.
const MOST: usize = 64;

impl PodEvents {
    /// Notes something that went as it should.
    pub fn normal(&mut self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>, container: Option<u16>) {
        self.push(PodEvent { warning: false, reason: reason.into(), message: message.into(), container });
    }

    /// Notes something that went wrong.
    pub fn warning(
        &mut self,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        container: Option<u16>,
    ) {
        self.push(PodEvent { warning: true, reason: reason.into(), message: message.into(), container });
    }

    fn push(&mut self, event: PodEvent) {
        if self.0.len() < MOST {
            self.0.push(event);
        }
    }

    /// True when nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what waits.
    pub fn take(&mut self) -> Vec<PodEvent> {
        std::mem::take(&mut self.0)
    }
}
