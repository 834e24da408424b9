//! Merges repeated runs into one run whose figures have a value for each repeat.

use super::{Column, RunReport};

/// Merges the runs of all repeats, which are in the same order; an interrupted repeat has fewer.
pub fn merge_repeats(repeats: Vec<Vec<RunReport>>) -> Vec<RunReport> {
    let count = repeats.len();
    let mut merged: Vec<RunReport> = Vec::new();
    for (number, runs) in repeats.into_iter().enumerate() {
        for run in runs {
            let same = |one: &&mut RunReport| one.label == run.label && one.size == run.size;
            match merged.iter_mut().find(same) {
                Some(one) => add(one, run, number, count),
                None => {
                    let mut one = RunReport {
                        label: run.label.clone(),
                        size: run.size.clone(),
                        ..RunReport::default()
                    };
                    add(&mut one, run, number, count);
                    merged.push(one);
                }
            }
        }
    }
    merged
}

fn add(merged: &mut RunReport, run: RunReport, number: usize, count: usize) {
    let says = |text: String| match count {
        1 => text,
        _ => format!("run {}: {text}", number + 1),
    };
    merged.repeats += 1;
    if !merged.load_before.is_empty() {
        merged.load_before += "; ";
    }
    merged.load_before += &run.load_before;
    merged.took_s += run.took_s;
    if merged.commands.is_empty() {
        merged.commands = run.commands;
    }
    if let Some(error) = run.error {
        let error = says(error);
        merged.error = Some(match merged.error.take() {
            Some(before) => format!("{before}; {error}"),
            None => error,
        });
    }
    merged.faults.extend(run.faults.into_iter().map(says));
    merged.invalid.extend(run.invalid.into_iter().map(says));
    merged.notes.extend(run.notes.into_iter().map(says));
    for (name, figure) in run.whole {
        let whole = merged.whole.entry(name).or_default();
        whole.set(number, figure.value(0));
    }
    for column in run.columns {
        let known = merged
            .columns
            .iter()
            .position(|one| one.name == column.name);
        let at = known.unwrap_or_else(|| {
            merged.columns.push(Column {
                name: column.name.clone(),
                ..Column::default()
            });
            merged.columns.len() - 1
        });
        add_column(&mut merged.columns[at], column, number);
    }
}

fn add_column(merged: &mut Column, column: Column, number: usize) {
    for (name, figure) in column.figures {
        let of_all = merged.figures.entry(name).or_default();
        of_all.set(number, figure.value(0));
    }
    for (name, histogram) in column.histograms {
        let of_all = merged.histograms.entry(name).or_default();
        for (bound, count) in histogram {
            match of_all.iter_mut().find(|(one, _)| *one == bound) {
                Some((_, all)) => *all += count,
                None => of_all.push((bound, count)),
            }
        }
        of_all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    for (name, points) in column.series {
        merged.series.entry(name).or_insert(points);
    }
}

#[cfg(test)]
mod tests {
    //! Figures of all repeats are kept, also those that only one repeat has.

    use std::collections::BTreeMap;

    use super::*;
    use crate::report::figure::Figure;

    fn run(label: &str, value: f64) -> RunReport {
        let column = Column {
            name: "target".to_owned(),
            figures: BTreeMap::from([("cpu".to_owned(), Figure::from(value))]),
            histograms: BTreeMap::from([("latency".to_owned(), vec![(value, 2)])]),
            series: BTreeMap::from([("cpu".to_owned(), vec![(0.5, value)])]),
        };
        RunReport {
            label: label.to_owned(),
            columns: vec![column],
            ..RunReport::default()
        }
    }

    #[test]
    fn figures_of_repeats_stand_together() {
        let mut broken = run("a", 0.0);
        (broken.columns, broken.error) = (Vec::new(), Some("no start".to_owned()));
        let mut third = run("a", 5.0);
        third.faults = vec!["lost".to_owned()];
        let merged = merge_repeats(vec![
            vec![run("a", 1.0), run("b", 9.0)],
            vec![broken, run("b", 9.0)],
            vec![third],
        ]);
        let [a, b] = merged.as_slice() else {
            panic!("{merged:?}")
        };
        let cpu = &a.columns[0].figures["cpu"];
        assert_eq!(
            [0, 1, 2].map(|run| cpu.value(run)),
            [Some(1.0), None, Some(5.0)]
        );
        assert_eq!(a.columns[0].histograms["latency"], [(1.0, 2), (5.0, 2)]);
        assert_eq!(a.columns[0].series["cpu"], [(0.5, 1.0)]);
        assert_eq!((a.repeats, b.repeats), (3, 2));
        assert_eq!(a.error.as_deref(), Some("run 2: no start"));
        assert_eq!(a.faults, ["run 3: lost"]);
        assert_eq!(b.columns[0].histograms["latency"], [(9.0, 4)]);
    }
}
