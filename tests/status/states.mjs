// A gateway in every state that the page has to show, without a gateway: a server of the page and of documents made up here. The page of a
// real gateway is checked beside it, which keeps these documents honest.
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';

const HOSTILE = [
  '<img src=x onerror=alert(1)><script>alert(1)</script>',
  'evil\u202egnp.exe\u202c\u200b\u0007\u001b[2Jx',
  'w'.repeat(160),
  '👩‍👩‍👧‍👦 kubectl/🚀 Z̷̛̹̙͇̐́͑a̵l̷g̴o̶',
  '',
];

function resource(name, watches, { slow = [], lost = 0, fill = 0.4, rate = 120, ...more } = {}) {
  const columns = new Array(64).fill(0);
  const endangered = slow.filter(({ state }) => state === 'endangered').length;
  for (const { position } of slow) if (position !== null) columns[Math.min(63, Math.floor(position * 64))] += 1;
  const behind = Math.floor(watches / 50);
  for (let at = 0; at < behind; at += 1) columns[63 - (at % 6)] += 1;
  const current = watches - slow.length - lost - behind;
  columns[63] += current;
  return {
    name, ready: true, note: 'ready', objects: 5_000, objectBytes: 12_500_000,
    upstream: { connected: true, ageSeconds: 0.02, silenceSeconds: 0.02 },
    ring: { events: 21_400, bytes: 64_000_000, fill, oldestVersion: 812_345, newestVersion: 833_745, oldestAgeSeconds: 171 },
    cursors: { watches, current, behind, slow: slow.length + lost, endangered, lost, future: 0, columns },
    events: watches * 1_000, bytes: watches * 2_400_000, upstreamEvents: 1_000, upstreamBytes: 2_400_000,
    eventsPerSecond: watches * rate / 10, bytesPerSecond: watches * rate * 240, ...more,
  };
}

function client(resourceName, at, state, { user, userAgent } = {}) {
  return {
    resource: resourceName, user: user ?? `system:serviceaccount:shop:crawler-${at % 7}`, userAgent: userAgent ?? `crawler/1.${at % 3} (linux/amd64) kubernetes/abcdef0`,
    address: `10.0.${at % 250}.7`, lagEvents: 600 * at + 17, lagSeconds: state === 'lost' ? 171 + at : 7 + at, state,
    position: state === 'lost' ? 0 : state === 'endangered' ? 0.06 + at / 300 : 0.3 + (at * 37 % 60) / 100, openSeconds: 4_000 + at,
  };
}

function cut(at, reason) {
  return { resource: 'pods.v1', user: at % 4 ? 'system:node:worker-17' : '', userAgent: `kubelet/v1.36.${at}`, address: '10.0.3.9', reason, secondsAgo: 12 + 70 * at, lagSeconds: reason === 'lagged' ? 80 : 121, events: 5_000, openSeconds: 900 };
}

function status(resources, { slowest = [], groups = [], cuts = [], failing = [], uptime = 7_300, draining = false, omitted = 0, shadow = null } = {}) {
  const sum = (of) => resources.reduce((all, one) => all + of(one), 0);
  const events = sum((one) => one.events), upstreamEvents = sum((one) => one.upstreamEvents), saved = Math.max(0, events - upstreamEvents);
  return {
    version: 1, at: Date.now(),
    gateway: { version: '0.1.0', commit: 'aee783b6', uptimeSeconds: uptime, ready: failing.length === 0, draining, failing },
    totals: {
      watches: sum((one) => one.cursors.watches), slow: sum((one) => one.cursors.slow), events, bytes: events * 2_400, upstreamEvents, upstreamBytes: upstreamEvents * 2_400,
      eventsPerSecond: resources.length ? sum((one) => one.eventsPerSecond ?? 0) : null, bytesPerSecond: resources.length ? sum((one) => one.bytesPerSecond ?? 0) : null,
      saved: { bytes: saved * 2_400, events: saved, requests: resources.length ? 41_000 : null },
      forwarded: { requests: 12_345, active: 17, failed: failing.length, requestsPerSecond: resources.length ? 210 : null },
      shadow, refused: failing.length, memory: { resident: 812_000_000, limit: resources.length ? 2_147_483_648 : null },
    },
    talkers: { seconds: resources.length ? 840 : 0, users: talkers(resources, groups.map((one) => one.user)), agents: talkers(resources, groups.map((one) => one.userAgent)) },
    resources: [...resources].sort((a, b) => b.cursors.watches - a.cursors.watches), resourcesOmitted: omitted, slowest, slowGroups: groups, cuts,
  };
}

// Whoever is slow asks for most.
function talkers(resources, names) {
  const all = resources.length ? [...new Set(['', ...names, 'system:serviceaccount:kube-system:replicaset-controller'])] : [];
  return all.map((name, at) => ({ name, watches: 90 - at, requests: 3_000 * (at + 1), lists: at * 7, bytes: 900_000_000 / (at + 1) }));
}

const group = (user, userAgent, watches, lagSeconds) => ({ user, userAgent, watches, lagSeconds });

function slowOnes() {
  const slow = [client('pods.v1', 40, 'endangered'), client('pods.v1', 21, 'slow', { user: 'jane', userAgent: 'kubectl/v1.36' }), client('pods.v1', 8, 'slow', { user: '', userAgent: 'curl/8.5' })];
  const lost = client('pods.v1', 3, 'lost', { user: 'system:serviceaccount:ci:runner' });
  const groups = [group('system:serviceaccount:shop:crawler-5', 'crawler/1.1 (linux/amd64) kubernetes/abcdef0', 2, 47), group('jane', 'kubectl/v1.36', 1, 28), group('', 'curl/8.5', 1, 15)];
  const cuts = [cut(0, 'lagged'), cut(1, 'disconnected')];
  return status([resource('pods.v1', 280, { slow, lost: 1, fill: 0.82 }), resource('configmaps.v1', 15), resource('deployments.v1.apps', 5, { rate: 2 })], { slowest: [lost, ...slow], groups, cuts });
}

function many() {
  const groups = HOSTILE.map((text, at) => group(text, HOSTILE[(at + 1) % HOSTILE.length], 90 - at, 100 - at));
  for (let at = 0; at < 15; at += 1) groups.push(group(`system:serviceaccount:team-${at}:controller`, `controller/${at} (linux/amd64) kubernetes/0123456`, 20 - at, 30));
  const slowest = [], resources = [];
  for (let at = 0; at < 40; at += 1) {
    const name = at === 0 ? 'pods.v1' : `things${at}.v1.example${at % 5}.com`;
    const slow = at < 12 ? Array.from({ length: 8 }, (_, n) => client(name, n * 5 + at, n < 2 ? 'endangered' : 'slow', n < 5 ? { user: HOSTILE[n], userAgent: HOSTILE[(n + at) % 5] } : {})) : [];
    slowest.push(...slow);
    resources.push(resource(name, at === 0 ? 3_000 : 51, { slow, lost: at === 0 ? 1_200 : 0, fill: at < 12 ? 0.9 : 0.1 }));
  }
  slowest.sort((a, b) => b.lagSeconds - a.lagSeconds);
  return status(resources, { slowest, groups: groups.slice(0, 20), cuts: Array.from({ length: 50 }, (_, at) => cut(at, at % 2 ? 'lagged' : 'disconnected')) });
}

// One of everything that is counted.
function one() {
  const slow = client('pods.v1', 5, 'slow'), single = resource('pods.v1', 1, { slow: [slow], rate: 10, objects: 1, events: 2, upstreamEvents: 1 });
  const failing = Array.from({ length: 6 }, (_, at) => `informer-${at}: is listed`);
  const groups = [group(slow.user, slow.userAgent, 1, slow.lagSeconds)];
  return status([{ ...single, ring: { ...single.ring, events: 1 } }], { slowest: [slow], groups, cuts: [cut(0, 'lagged')], failing, omitted: 1 });
}

// Some clients have just come.
function initial(more) {
  const pods = resource('pods.v1', 140);
  return status([{ ...pods, cursors: { ...pods.cursors, current: 128, behind: 12, initial: 12, future: 1 } }], more);
}

function lost(one) {
  return { ...one, upstream: { connected: false, ageSeconds: 83, silenceSeconds: 83 } };
}

export const STATES = {
  starting: () => status([], { failing: ['informer-pods.v1: pods.v1 is listed, 12,500 objects so far'], uptime: 3 }),
  filling: () => status([{ ...resource('pods.v1', 0), ready: false, harmless: true, note: 'is listed, 12,500 objects so far', ring: null, objects: 0, objectBytes: 0, eventsPerSecond: null, bytesPerSecond: null, upstream: { connected: false, ageSeconds: 0, silenceSeconds: null } }], { failing: ['pods.v1: is listed, 12,500 objects so far'], uptime: 9 }),
  idle: () => status([resource('pods.v1', 0, { rate: 0 }), resource('configmaps.v1', 0, { ring: { events: 0, bytes: 0, fill: 0, oldestVersion: null, newestVersion: 17, oldestAgeSeconds: 0 } })]),
  one,
  three: () => status([resource('pods.v1', 2), resource('configmaps.v1', 1)]),
  shadow: () => status([resource('pods.v1', 2)], { shadow: { watches: 1, equal: 1_234_567, missing: 3, extra: 0, content: 1, status: 0, notComparable: 4_321 } }),
  slow: slowOnes,
  many,
  initial: () => initial({}),
  draining: () => initial({ draining: true, failing: ['drain: the gateway is draining'] }),
  upstream: () => status([lost(resource('pods.v1', 280)), lost(resource('configmaps.v1', 20))], { failing: ['pods.v1: no upstream watch for 83 s: connection refused (os error 111)'] }),
};

// Serves the state that the path begins with, such as /slow/status; a page whose state is dropped loses its connection.
export async function serve(pageFile) {
  const page = fs.readFileSync(pageFile, 'utf8');
  const inside = (tag) => page.split(`<${tag}>`)[1].split(`</${tag}>`)[0];
  const hash = (tag) => crypto.createHash('sha256').update(inside(tag)).digest('base64');
  const policy = `default-src 'none'; style-src 'sha256-${hash('style')}'; script-src 'sha256-${hash('script')}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
  let state = 'idle', refuses = null;
  const open = new Set();
  const server = http.createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname;
    if (path === '/status') {
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy });
      response.end(page);
    } else if (refuses === 'all' || (refuses === 'events' && path === '/status/events')) {
      response.writeHead(refuses === 'all' ? 403 : 429, { 'content-type': 'text/plain' });
      response.end('too many people look at the status\n');
    } else if (path === '/status.json') {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(STATES[state]()));
    } else {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const send = () => response.write(`data: ${JSON.stringify(STATES[state]())}\n\n`);
      const timer = setInterval(send, 1_000);
      open.add(response);
      response.on('close', () => { clearInterval(timer); open.delete(response); });
      send();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/status`,
    show(name, refusing = null) { state = name; refuses = refusing; },
    drop() { server.close(); server.closeAllConnections(); },
  };
}
