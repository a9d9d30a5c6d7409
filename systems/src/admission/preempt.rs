//! Which pods make way for a critical one that finds no room: as few as can be, those without requests first.

use super::fit::Amounts;
use components::ids::PodUid;
use components::spec::QosClass;

/// A pod that may have to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) uid: PodUid,
    pub(crate) qos: QosClass,
    pub(crate) amounts: Amounts,
}

/// What is lacking: resource and amount.
pub(crate) type Need = (String, i64);

/// The pods that make way; `Err` with what cannot be had by any choice.
pub(crate) fn choose(candidates: &[Candidate], needs: &[Need]) -> Result<Vec<PodUid>, Vec<Need>> {
    let of = |qos| candidates.iter().filter(|c| c.qos == qos).collect::<Vec<_>>();
    let (idle, some, whole) = (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    let all: Vec<&Candidate> = candidates.iter().collect();
    let missing = left(needs, &all);
    if !missing.is_empty() {
        return Err(missing);
    }
    // Of each class only what the cheaper ones cannot give.
    let cheaper: Vec<&Candidate> = idle.iter().chain(&some).copied().collect();
    let guaranteed = nearest(whole, left(needs, &cheaper));
    let given: Vec<&Candidate> = idle.iter().chain(&guaranteed).copied().collect();
    let burstable = nearest(some, left(needs, &given));
    let given: Vec<&Candidate> = burstable.iter().chain(&guaranteed).copied().collect();
    let best_effort = nearest(idle, left(needs, &given));
    Ok(best_effort.iter().chain(&burstable).chain(&guaranteed).map(|c| c.uid.clone()).collect())
}

/// What is still lacking once these pods are gone.
pub(super) fn left(needs: &[Need], gone: &[&Candidate]) -> Vec<Need> {
    let left = needs.iter().map(|(name, amount)| {
        let freed = gone.iter().fold(0_i64, |sum, c| sum.saturating_add(c.amounts.of_resource(name)));
        (name.clone(), amount.saturating_sub(freed))
    });
    left.filter(|(_, amount)| *amount > 0).collect()
}

/// Takes the pod nearest to what is lacking, of equals the smaller, until nothing is.
fn nearest(mut pods: Vec<&Candidate>, mut needs: Vec<Need>) -> Vec<&Candidate> {
    let mut chosen = Vec::new();
    while !needs.is_empty() {
        let better = |a: &&Candidate, b: &&Candidate| {
            let by_distance = distance(&needs, a).total_cmp(&distance(&needs, b));
            let size = |c: &Candidate| (c.amounts.memory, c.amounts.cpu_milli);
            by_distance.then_with(|| size(a).cmp(&size(b))).then_with(|| a.uid.cmp(&b.uid))
        };
        let Some(best) = pods.iter().copied().min_by(better) else { break };
        needs = left(&needs, &[best]);
        pods.retain(|c| c.uid != best.uid);
        chosen.push(best);
    }
    chosen
}

/// How much of what is lacking a pod leaves open: each resource counts alike.
fn distance(needs: &[Need], pod: &Candidate) -> f64 {
    let open = needs.iter().map(|(name, amount)| {
        let rest = amount.saturating_sub(pod.amounts.of_resource(name)).max(0);
        (rest as f64 / *amount as f64).powi(2)
    });
    open.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(uid: &str, qos: QosClass, cpu_milli: i64) -> Candidate {
        Candidate { uid: uid.into(), qos, amounts: Amounts { cpu_milli, ..Amounts::default() } }
    }

    #[track_caller]
    fn check(needs: &[(&str, i64)], expect: Result<&[&str], i64>) {
        let pods = [
            candidate("b1", QosClass::Burstable, 300),
            candidate("b2", QosClass::Burstable, 500),
            candidate("g1", QosClass::Guaranteed, 600),
            candidate("g2", QosClass::Guaranteed, 2000),
            candidate("n", QosClass::BestEffort, 0),
        ];
        let needs: Vec<Need> = needs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        let found = choose(&pods, &needs).map_err(|missing| missing[0].1);
        let expect = expect.map(|uids| uids.iter().map(|uid| PodUid::from(*uid)).collect::<Vec<_>>());
        assert_eq!(found, expect);
    }

    #[test]
    fn as_few_as_can_be_make_way() {
        check(&[], Ok(&[]));
        check(&[("cpu", 200)], Ok(&["b1"]));
        check(&[("cpu", 400)], Ok(&["b2"]));
        check(&[("cpu", 700)], Ok(&["b2", "b1"]));
        // All burstable ones do not do: a guaranteed one goes, and with it there may be no need for the others.
        check(&[("cpu", 1000)], Ok(&["b2", "g1"]));
        check(&[("cpu", 1300)], Ok(&["b2", "b1", "g1"]));
        check(&[("cpu", 5000)], Err(1600));
        check(&[("pods", 1)], Ok(&["n"]));
    }
}
