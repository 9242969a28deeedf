//! Nothing happens: one job and eight, on one to four stages.

use super::run::{Cluster, Sandbox, assert_same};

fn equal(jobs: usize, stages: &[usize]) {
    let sandbox = Sandbox::new(jobs);
    let wanted = sandbox.alone();
    for &stages in stages {
        sandbox.forget_cluster();
        let mut cluster = Cluster::start(&sandbox, stages, stages);
        cluster.submit();
        assert_same(&cluster.adapters(), &wanted);
    }
}

#[test]
fn one_job_has_the_bytes_of_one_process() {
    equal(1, &[1, 2]);
}

#[test]
fn eight_jobs_have_the_bytes_of_one_process_on_two_to_four_stages() {
    equal(8, &[2, 3, 4]);
}
