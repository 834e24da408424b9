// Informers of the official JavaScript client, whose contents are printed on request.
//
//   node informers.js NODE_MODULES URL CA TOKEN_FILE
//
// A line on standard input is a request: "ids" or "whole"; the response is one line of JSON. Exits at the end of its input.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [modules, server, ca, tokenFile] = process.argv.slice(2);
const found = createRequire(`${modules}/`).resolve('@kubernetes/client-node');
const k8s = await import(pathToFileURL(found));

const BACK_MAX = 5;
const PAUSE_MS = 200; // between attempts while the server is unreachable

const config = new k8s.KubeConfig();
if (server === 'in-cluster') {
  config.loadFromCluster(); // what a pod's environment names
} else {
  // The library uses plain HTTP only if TLS verification is disabled.
  const cluster = server.startsWith('https') ? { caFile: ca } : { skipTLSVerify: true };
  config.loadFromOptions({
    clusters: [{ name: 'one', server, ...cluster }],
    users: [{ name: 'one', token: readFileSync(tokenFile, 'utf8').trim() }],
    contexts: [{ name: 'one', cluster: 'one', user: 'one' }],
    currentContext: 'one',
  });
}
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);

const keyOf = (object) => `${object.metadata.namespace ?? ''}/${object.metadata.name}`;

// One informer, the contents that its handlers were given, and each time an object's version went back.
class Watched {
  constructor(path, list, labelSelector, fieldSelector) {
    this.told = new Map();
    this.newest = new Map();
    this.back = [];
    this.errors = 0;
    this.lastError = null;
    this.lists = 0;
    this.synced = false;
    const listed = async () => {
      const items = await list({ labelSelector, fieldSelector });
      this.lists += 1;
      this.synced = true;
      return items;
    };
    // The same as makeInformer, which takes no field selector.
    this.informer = fieldSelector
      ? new k8s.ListWatch(path, new k8s.Watch(config), listed, false, labelSelector, fieldSelector)
      : k8s.makeInformer(config, path, listed, labelSelector);
    this.informer.on('add', (object) => this.tell('add', object));
    this.informer.on('update', (object) => this.tell('update', object));
    this.informer.on('delete', (object) => this.tell('delete', object));
    // As in the library's examples: an error stops an informer, which is then started again.
    this.informer.on('error', (error) => {
      this.errors += 1;
      this.lastError = String(error);
      setTimeout(() => this.informer.start(), PAUSE_MS);
    });
    this.informer.start();
  }

  tell(what, object) {
    const [key, version] = [keyOf(object), BigInt(object.metadata.resourceVersion)];
    const before = this.newest.get(key) ?? 0n;
    if (version < before && this.back.length < BACK_MAX) this.back.push(`${what} ${key} at ${version} after ${before}`);
    if (version > before) this.newest.set(key, version);
    if (what === 'delete') this.told.delete(key);
    else this.told.set(key, [object.metadata.uid, object.metadata.resourceVersion]);
  }

  contents(whole) {
    const held = this.informer.list();
    const answer = {
      synced: this.synced,
      objects: Object.fromEntries(held.map((o) => [keyOf(o), [o.metadata.uid, o.metadata.resourceVersion]])),
      told: Object.fromEntries(this.told),
      back: this.back,
      lists: this.lists,
      errors: this.errors,
      last_error: this.lastError,
    };
    if (whole) answer.whole = Object.fromEntries(held.map((o) => [keyOf(o), o]));
    return answer;
  }
}

const pods = (labels, fields) => new Watched('/api/v1/pods', (o) => core.listPodForAllNamespaces(o), labels, fields);
const widgets = () => custom.listClusterCustomObject({ group: 'example.com', version: 'v1', plural: 'widgets' });
const informers = {
  'typed pods|||': pods(),
  'typed pods||app=demo|': pods('app=demo'),
  'typed pods||app notin (demo, test)|': pods('app notin (demo, test)'),
  'typed pods|||spec.nodeName=node-1': pods(undefined, 'spec.nodeName=node-1'),
  'typed configmaps|||': new Watched('/api/v1/configmaps', () => core.listConfigMapForAllNamespaces()),
  'custom widgets|||': new Watched('/apis/example.com/v1/widgets', widgets),
};

for await (const question of createInterface(process.stdin)) {
  const told = Object.entries(informers).map(([name, one]) => [name, one.contents(question === 'whole')]);
  process.stdout.write(`${JSON.stringify({ event: 'contents', clients: Object.fromEntries(told) })}\n`);
}
process.exit(0);
