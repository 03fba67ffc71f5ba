//! Removal of runs by age.
//!
//! A tree of runs is removed as a whole, once every run in it has ended and the time to live of its root has passed
//! since the last end. An imported run counts as ended when it was imported.

use chrono::{DateTime, TimeDelta, Utc};

use super::id::Name;

/// A time to live for the runs of an agent, or with a tag, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub agent: Option<Name>,
    pub tag: Option<Name>,
    /// Seconds; 0 means forever.
    pub ttl_s: i64,
}

/// The facts that decide when a tree of runs is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// The last end, or import.
    pub since: DateTime<Utc>,
    /// The root's own time to live, seconds; 0 means forever.
    pub ttl_s: Option<i64>,
    pub agent: Option<String>,
    pub tags: Vec<String>,
}

/// How long runs are kept: a run's own time to live, else that of the first matching rule, else the default, else
/// forever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub rules: Vec<Rule>,
    /// The default, seconds.
    pub ttl_s: Option<i64>,
}

impl Policy {
    /// The shortest time to live of the rules and the default, seconds; `None` if they remove nothing.
    pub fn least(&self) -> Option<i64> {
        let all = self.rules.iter().map(|rule| rule.ttl_s).chain(self.ttl_s);
        all.filter(|ttl_s| *ttl_s > 0).min()
    }

    /// When a tree is due; `None` if never.
    pub fn due_at(&self, age: &Age) -> Option<DateTime<Utc>> {
        let matches = |rule: &&Rule| {
            rule.agent.as_ref().is_none_or(|agent| age.agent.as_deref() == Some(agent.as_str()))
                && rule.tag.as_ref().is_none_or(|tag| age.tags.iter().any(|own| own == tag.as_str()))
        };
        let by_rule = || self.rules.iter().find(matches).map(|rule| rule.ttl_s);
        let ttl_s = age.ttl_s.or_else(by_rule).or(self.ttl_s).filter(|ttl_s| *ttl_s > 0)?;
        age.since.checked_add_signed(TimeDelta::try_seconds(ttl_s)?)
    }

    /// Whether a tree is due.
    pub fn is_due(&self, age: &Age, now: DateTime<Utc>) -> bool {
        self.due_at(age).is_some_and(|at| at < now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(agent: Option<&str>, tag: Option<&str>, ttl_s: i64) -> Rule {
        Rule { agent: agent.map(Name::trusted), tag: tag.map(Name::trusted), ttl_s }
    }

    fn age(ttl_s: Option<i64>, agent: &str, tags: &[&str]) -> Age {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        Age { since: DateTime::UNIX_EPOCH, ttl_s, agent: Some(agent.to_owned()), tags }
    }

    fn seconds(policy: &Policy, age: &Age) -> Option<i64> {
        policy.due_at(age).map(|at| at.timestamp())
    }

    #[test]
    fn a_runs_own_time_counts_before_the_first_rule_that_matches_and_that_before_the_default() {
        let rules = vec![
            rule(Some("billing"), Some("audit"), 0),
            rule(Some("billing"), None, 20),
            rule(None, Some("audit"), 30),
        ];
        let policy = Policy { rules, ttl_s: Some(10) };
        assert_eq!(seconds(&policy, &age(Some(5), "billing", &["audit"])), Some(5));
        assert_eq!(seconds(&policy, &age(Some(0), "other", &[])), None);
        assert_eq!(seconds(&policy, &age(None, "billing", &["x", "audit"])), None);
        assert_eq!(seconds(&policy, &age(None, "billing", &[])), Some(20));
        assert_eq!(seconds(&policy, &age(None, "other", &["audit"])), Some(30));
        assert_eq!(seconds(&policy, &age(None, "other", &[])), Some(10));
        assert_eq!(seconds(&Policy::default(), &age(None, "other", &[])), None);
        assert_eq!(policy.least(), Some(10));
        assert_eq!(Policy { rules: vec![rule(Some("a"), None, 0)], ttl_s: None }.least(), None);
    }

    proptest! {
        #[test]
        fn nothing_is_due_before_the_least_time_to_live(
            rules in proptest::collection::vec((any::<bool>(), 0_i64..100), 0..4),
            default in proptest::option::of(1_i64..100),
            own in proptest::option::of(0_i64..100),
            after_s in 0_i64..120,
        ) {
            let rules = rules.into_iter().map(|(agent, ttl_s)| rule(agent.then_some("a"), None, ttl_s)).collect();
            let policy = Policy { rules, ttl_s: default };
            let age = age(own, "a", &[]);
            let now = age.since + TimeDelta::seconds(after_s);
            if policy.is_due(&age, now) {
                let least = policy.least().into_iter().chain(own.filter(|own| *own > 0)).min();
                prop_assert!(least.is_some_and(|least| least < after_s));
            }
        }
    }
}
