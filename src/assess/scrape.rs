//! One scrape of kube-apiserver's `/metrics`: the few series that an assessment needs, summed by resource.

use std::collections::BTreeMap;

use super::exposition::{SeriesSample, sample};
use super::group_resource::GroupResource;
use super::lines::{FileLine, LineProblems};

/// More resources than any cluster has; what a hostile file could add beyond is left out.
const RESOURCES_MAX: usize = 5_000;
/// Where this many lines and half of all are no samples, the file is something else.
const BAD_LINES_MIN: u64 = 10;

/// What a scrape says of one resource. Series that differ in other labels are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ResourceSeries {
    /// Open watches; all others are counters.
    pub(super) watches: f64,
    pub(super) watch_requests: f64,
    pub(super) list_requests: f64,
    /// Events sent to all watches, with bookmarks and initial events.
    pub(super) events: f64,
    pub(super) event_bytes: f64,
    pub(super) initial_events: f64,
    pub(super) list_bytes: f64,
    /// Events that the watch cache had from etcd.
    pub(super) changes: f64,
    /// Stored objects, if the server says it: of what a service behind an APIService serves, it does not.
    pub(super) objects: Option<f64>,
}

/// A scrape, read line by line.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    /// When the process started, in seconds of Unix time: tells servers and their restarts apart.
    pub(super) started_at: Option<f64>,
    pub(super) cpu_seconds: Option<f64>,
    /// The server's own last garbage collection: Go makes one every two minutes at least, so this tells roughly when the scrape was.
    pub(super) collected_at: Option<f64>,
    pub(super) resources: BTreeMap<GroupResource, ResourceSeries>,
    pub(super) problems: LineProblems,
    line_count: u64,
    has_watches: bool,
    is_cut: bool,
}

impl Scrape {
    /// Adds the line with this number.
    pub(super) fn add(&mut self, number: u64, line: &FileLine<'_>) {
        self.line_count += 1;
        let text = match line {
            FileLine::Whole(text) => text,
            // A number may lack its last digits.
            FileLine::Cut(_) => {
                self.is_cut = true;
                return;
            }
            FileLine::TooLong => return self.problems.note(number, "longer than 1 MiB"),
        };
        match sample(text) {
            Err(error) => self.problems.note(number, error),
            Ok(None) => {}
            Ok(Some(sample)) => {
                if let Err(reason) = self.add_sample(&sample) {
                    self.problems.note(number, reason);
                }
            }
        }
    }

    /// Why an assessment cannot use the file.
    pub(super) fn defect(&self) -> Option<&'static str> {
        let bad = self.problems.count();
        if self.line_count == 0 {
            Some("the file is empty")
        } else if bad >= BAD_LINES_MIN && bad * 2 > self.line_count {
            Some("most lines are not in the Prometheus text format")
        } else if self.is_cut {
            Some("the file ends within a line: it is a part of a scrape")
        } else if self.started_at.is_none() {
            Some(
                "it has no process_start_time_seconds: it is a part of a scrape, or none of an API server",
            )
        } else if !self.has_watches {
            Some("it has no apiserver_longrunning_requests: it is no scrape of kube-apiserver")
        } else {
            None
        }
    }

    fn add_sample(&mut self, sample: &SeriesSample<'_>) -> Result<(), &'static str> {
        let verb = sample.label("verb");
        let process = match sample.name {
            "process_start_time_seconds" => Some(&mut self.started_at),
            "process_cpu_seconds_total" => Some(&mut self.cpu_seconds),
            "go_memstats_last_gc_time_seconds" => Some(&mut self.collected_at),
            _ => None,
        };
        if let Some(value) = process {
            *value = Some(usable(sample.value)?);
            return Ok(());
        }
        let pick: fn(&mut ResourceSeries) -> &mut f64 = match sample.name {
            "apiserver_longrunning_requests" if verb == "WATCH" => |one| &mut one.watches,
            "apiserver_request_total" if verb == "WATCH" => |one| &mut one.watch_requests,
            "apiserver_request_total" if verb == "LIST" => |one| &mut one.list_requests,
            "apiserver_response_sizes_sum" if verb == "LIST" => |one| &mut one.list_bytes,
            "apiserver_watch_events_total" => |one| &mut one.events,
            "apiserver_watch_events_sizes_sum" => |one| &mut one.event_bytes,
            "apiserver_init_events_total" => |one| &mut one.initial_events,
            "apiserver_watch_cache_events_received_total" => |one| &mut one.changes,
            "apiserver_resource_objects" => |one| one.objects.get_or_insert(0.0),
            _ => return Ok(()),
        };
        self.has_watches |= sample.name == "apiserver_longrunning_requests";
        // The server writes -1 where it could not count.
        let is_unknown = sample.name == "apiserver_resource_objects" && sample.value == -1.0;
        if !sample.label("subresource").is_empty() || is_unknown {
            return Ok(());
        }
        if sample.label("resource").is_empty() {
            return Ok(());
        }
        let value = usable(sample.value)?;
        let name = GroupResource::new(sample.label("group"), sample.label("resource"));
        let name = name.ok_or("group and resource are not names")?;
        if self.resources.len() >= RESOURCES_MAX && !self.resources.contains_key(&name) {
            return Err("more than 5,000 resources");
        }
        *pick(self.resources.entry(name).or_default()) += value;
        Ok(())
    }
}

/// Counters, times and numbers of things are finite, and not negative.
fn usable(value: f64) -> Result<f64, &'static str> {
    let is_usable = value.is_finite() && value >= 0.0;
    is_usable
        .then_some(value)
        .ok_or("the value is negative, infinite or not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(text: &str) -> Scrape {
        let mut scrape = Scrape::default();
        for (number, line) in (1..).zip(text.lines()) {
            scrape.add(number, &FileLine::Whole(line.as_bytes()));
        }
        scrape
    }

    const WHOLE: &str = "\
# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 11
apiserver_longrunning_requests{group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 2
apiserver_longrunning_requests{group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"log\",verb=\"CONNECT\",version=\"v1\"} 5
apiserver_request_total{code=\"200\",resource=\"pods\",group=\"\",verb=\"LIST\"} 3
apiserver_request_total{code=\"429\",resource=\"pods\",group=\"\",verb=\"LIST\"} 1
apiserver_request_total{code=\"200\",resource=\"pods\",group=\"\",verb=\"WATCH\"} 19
apiserver_request_total{code=\"200\",resource=\"pods\",group=\"\",verb=\"GET\"} 99
apiserver_response_sizes_sum{resource=\"pods\",group=\"\",verb=\"LIST\"} 204
apiserver_watch_events_total{group=\"\",resource=\"pods\",version=\"v1\"} 973
apiserver_watch_events_sizes_sum{group=\"\",resource=\"pods\",version=\"v1\"} 1.927285e+06
apiserver_init_events_total{group=\"\",resource=\"pods\"} 143
apiserver_watch_cache_events_received_total{group=\"\",resource=\"pods\"} 526
apiserver_resource_objects{group=\"\",resource=\"pods\"} 10
process_cpu_seconds_total 3.87
process_start_time_seconds 1.79594167656e+09
";

    #[test]
    fn series_are_summed_by_resource() {
        let scrape = scrape(WHOLE);
        assert_eq!(scrape.defect(), None);
        assert_eq!(scrape.problems.count(), 0);
        let pods = GroupResource::new("", "pods").unwrap();
        let expected = ResourceSeries {
            watches: 13.0,
            watch_requests: 19.0,
            list_requests: 4.0,
            events: 973.0,
            event_bytes: 1_927_285.0,
            initial_events: 143.0,
            list_bytes: 204.0,
            changes: 526.0,
            objects: Some(10.0),
        };
        assert_eq!(scrape.resources, [(pods, expected)].into());
        assert_eq!(scrape.cpu_seconds, Some(3.87));
    }

    #[test]
    fn a_part_of_a_scrape_and_other_files_are_refused() {
        let half: String = WHOLE
            .lines()
            .take(9)
            .fold(String::new(), |text, line| text + line + "\n");
        let other = "go_goroutines 1\nprocess_start_time_seconds 1\n";
        let page = "<html>\n".repeat(20);
        for (text, reason) in [
            ("", "is empty"),
            (&*half, "no process_start_time_seconds"),
            (other, "no apiserver_longrunning_requests"),
            (&page, "not in the Prometheus text format"),
        ] {
            let defect = scrape(text).defect().unwrap();
            assert!(defect.contains(reason), "{text}: {defect}");
        }
        let mut cut = scrape(WHOLE);
        cut.add(17, &FileLine::Cut(b"process_virtual_memory_bytes 1"));
        assert!(cut.defect().unwrap().contains("within a line"));
    }

    #[test]
    fn impossible_values_are_left_out_and_named() {
        let bad = "\
apiserver_watch_events_total{group=\"\",resource=\"pods\"} NaN
apiserver_watch_events_total{group=\"\",resource=\"pods\"} +Inf
apiserver_watch_events_total{group=\"\",resource=\"pods\"} -1
apiserver_watch_events_total{group=\"\",resource=\"<b>\"} 1
apiserver_resource_objects{group=\"\",resource=\"nodes\"} -1
process_cpu_seconds_total -1
\u{1}
";
        let scrape = scrape(&format!("{WHOLE}{bad}"));
        assert_eq!(scrape.problems.count(), 6);
        let text = scrape.problems.to_string();
        assert!(
            text.contains("first line 17: the value is negative"),
            "{text}"
        );
        let pods = GroupResource::new("", "pods").unwrap();
        assert_eq!(scrape.resources[&pods].events, 973.0);
        assert_eq!((scrape.resources.len(), scrape.defect()), (1, None));
        assert_eq!(scrape.cpu_seconds, Some(3.87));
    }

    #[test]
    fn resources_are_bounded() {
        let mut text = WHOLE.to_owned();
        for number in 0..RESOURCES_MAX + 3 {
            text.push_str(&format!(
                "apiserver_watch_events_total{{resource=\"r{number}\"}} 1\n"
            ));
        }
        let scrape = scrape(&text);
        assert_eq!(scrape.resources.len(), RESOURCES_MAX);
        assert_eq!(scrape.problems.count(), 4);
    }
}
