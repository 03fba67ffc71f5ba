//! [`Admission`]: who may use which agent of the configuration, and who may answer the interrupts of its runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    config::sections::{Agent, AgentKind, Named, Subject},
    domain::{id::Name, principal::OwnerId},
};

/// The rules of all agents. An agent without rules is open to every principal. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    agents: Arc<HashMap<Name, Rules>>,
}

#[derive(Debug)]
struct Rules {
    /// `None`: every principal.
    users: Option<HashSet<OwnerId>>,
    /// `None`: the run's owner.
    approvers: Option<HashSet<OwnerId>>,
    /// Whether it continues from its thread's checkpoint, regardless of what its client sends.
    remembers: bool,
}

/// Derives a principal's key from its issuer and subject.
pub(super) type KeyOf<'a> = dyn Fn(&str, &str) -> OwnerId + 'a;

impl Admission {
    /// The rules of the configuration's agents; `owner` derives the key of a subject. Without it, every agent is open.
    pub(super) fn of(agents: &Named<Agent>, owner: Option<&KeyOf<'_>>) -> Self {
        let keys = |subjects: &Option<Vec<Subject>>| {
            let (subjects, owner) = (subjects.as_ref()?, owner?);
            Some(subjects.iter().map(|subject| owner(subject.iss(), subject.sub())).collect())
        };
        let rules = |agent: &Agent| Rules {
            users: keys(&agent.allow),
            approvers: keys(&agent.approvers),
            remembers: agent.kind == AgentKind::Assistant,
        };
        let rules = agents.iter().filter_map(|(name, agent)| Some((name.parse().ok()?, rules(agent))));
        Self { agents: Arc::new(rules.collect()) }
    }

    /// Whether a run of this agent may belong to `owner`, regardless of how it was created.
    pub fn may_use(&self, owner: &OwnerId, agent: &Name) -> bool {
        let users = self.agents.get(agent).and_then(|rules| rules.users.as_ref());
        users.is_none_or(|users| users.contains(owner))
    }

    /// Whether the agent continues from its thread's checkpoint and needs only new messages: true for configured agents
    /// other than AG-UI endpoints.
    pub fn remembers(&self, agent: &Name) -> bool {
        self.agents.get(agent).is_some_and(|rules| rules.remembers)
    }

    /// Whether `asker` may answer for a run of this agent that belongs to `owner`.
    pub fn may_answer(&self, asker: &OwnerId, agent: Option<&Name>, owner: &OwnerId) -> bool {
        let rules = agent.and_then(|agent| self.agents.get(agent));
        match rules.and_then(|rules| rules.approvers.as_ref()) {
            Some(approvers) => approvers.contains(asker),
            None => asker == owner,
        }
    }

    /// Whether there is an agent for which `asker` may answer for other owners' runs.
    pub fn answers_for_others(&self, asker: &OwnerId) -> bool {
        self.agents.values().filter_map(|rules| rules.approvers.as_ref()).any(|approvers| approvers.contains(asker))
    }
}
