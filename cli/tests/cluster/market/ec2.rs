//! A cluster whose machines are instances of EC2, as moto plays it: asked for, tagged, given back, and nothing is left over.
//!
//! moto starts no machine, so the test does what an instance's user data does: a gpu-actor of the name that the tag says. moto is
//! looked for as `SPOTMUX_MOTO`, a Python that has it; without one this says so and passes.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{Cluster, Places, Sandbox, assert_same};
use crate::sandbox::SHORT;

const SET_UP: &str = "
import boto3, sys
ec2 = boto3.client('ec2', region_name='us-east-1', endpoint_url=sys.argv[1], aws_access_key_id='a', aws_secret_access_key='b')
image = ec2.describe_images()['Images'][0]['ImageId']
ec2.create_launch_template(LaunchTemplateName='spotmux', LaunchTemplateData={'ImageId': image, 'InstanceType': 'g5.xlarge'})
";

/// What of the cluster runs or is about to, by its tag: its name and the first digits of its authority's fingerprint.
const LEFT: &str = "
import boto3, sys
ec2 = boto3.client('ec2', region_name='us-east-1', endpoint_url=sys.argv[1], aws_access_key_id='a', aws_secret_access_key='b')
found = ec2.describe_instances(Filters=[{'Name': 'tag:spotmux-cluster', 'Values': ['local-????????']}])
all = [i for r in found['Reservations'] for i in r['Instances']]
print(len([i for i in all if i['State']['Name'] in ('pending', 'running')]), len(all))
";

/// A server that ends with the test.
struct Moto {
    child: Child,
    python: String,
    address: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    fn start() -> Option<Self> {
        let python = std::env::var("SPOTMUX_MOTO").ok()?;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = "from moto.server import main; import sys; main(sys.argv[1:])";
        let child = Command::new(&python)
            .args(["-c", server, "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("http://127.0.0.1:{port}");
        let moto = Self {
            child,
            python,
            address,
        };
        let begin = Instant::now();
        loop {
            let (done, told) = moto.run(SET_UP);
            if done {
                return Some(moto);
            }
            assert!(begin.elapsed() < Duration::from_secs(180), "{told}");
        }
    }

    /// Runs a script against the server.
    fn run(&self, script: &str) -> (bool, String) {
        let ran = Command::new(&self.python)
            .args(["-c", script, &self.address])
            .output()
            .unwrap();
        let text = match ran.status.success() {
            true => ran.stdout,
            false => ran.stderr,
        };
        (
            ran.status.success(),
            String::from_utf8_lossy(&text).trim().to_owned(),
        )
    }
}

#[test]
fn machines_of_ec2_train_a_job_and_none_is_left_over() {
    let Some(moto) = Moto::start() else {
        println!(
            "SKIPPED: no SPOTMUX_MOTO, a Python with moto[ec2,server] and boto3: no cluster of EC2 machines is tried"
        );
        return;
    };
    let sandbox = Sandbox::of(SHORT);
    let wanted = sandbox.alone();
    let market = format!(
        "[market]\nprovider = \"aws\"\naws_endpoint = \"{}\"\naws_template = \"spotmux\"\naws_types = \"g5.xlarge\"\n\
         policy = \"maximal\"\nmost = 1\nslot_seconds = 5\ndeadline_minutes = 60\nboot_seconds = 90\ngrace_seconds = 5\n\
         rest_seconds = 2\nlook_ms = 300\n",
        moto.address
    );
    sandbox.write("cluster.toml", &(Places::free(0).file(1) + &market));
    let with_keys = |words: &[&str]| {
        let mut command = sandbox.command(words);
        command
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b");
        command
    };
    // Without keys nothing is started, and it says which.
    let mut keyless = sandbox.command(&["config", "check"]);
    let ran = keyless.env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        !ran.status.success() && told.contains("AWS_ACCESS_KEY_ID"),
        "{told}"
    );

    let up = with_keys(&["up", "--quiet"]);
    let mut cluster = Cluster::without_nodes(&sandbox, vec![("up", up)], with_keys);
    cluster.submit();
    let token = cluster.until("a machine is granted", |cluster| {
        let told = cluster.json(&["market", "orphans"])?;
        let held = told["held"].as_array()?.first()?.as_str()?.to_owned();
        (told["listed"] == 1 && told["missing"] == Value::Array(Vec::new())).then_some(held)
    });
    assert_eq!(moto.run(LEFT).1, "1 1");
    // What its user data does.
    let ran = with_keys(&["ca", "issue", &token, "--quiet"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let node = with_keys(&[
        "gpu-actor",
        "--name",
        &token,
        "--set",
        "gpu_actor.listen=127.0.0.1:0",
        "--set",
        "telemetry.metrics=false",
    ]);
    // It ends when the market gives its machine back; then no other process of the test may have ended before.
    let adapters = {
        let mut command = node;
        let mut process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let adapters = cluster.adapters();
        cluster.until("no machine is held", |cluster| {
            let told = cluster.json(&["market", "orphans"])?;
            let none = |key: &str| told[key].as_array().is_some_and(Vec::is_empty);
            (none("held") && none("unclaimed")).then_some(())
        });
        let _ = process.kill();
        let _ = process.wait();
        adapters
    };
    assert_same(&adapters, &wanted);
    let (_, left) = moto.run(LEFT);
    assert!(left.starts_with("0 "), "running and in all: {left}");
}
