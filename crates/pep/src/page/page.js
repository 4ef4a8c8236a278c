// Draws what /live.json says of the daemon, once a second: its report, and the samples since the last one drawn.
'use strict';

const KEPT_S = 600;
const POLL_MS = 1000;
const PATIENCE_MS = 4000;

const byId = (id) => document.getElementById(id);

// --- Words and units, as `bentpipe status` has them.

function scaled(value, units) {
  let scale = 0;
  while (value >= 999.5 && scale + 1 < units.length) {
    value /= 1000;
    scale += 1;
  }
  return `${value.toFixed(scale === 0 || value >= 99.95 ? 0 : 1)} ${units[scale]}`;
}
const rate = (bits) => scaled(bits, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s']);
const size = (bytes) => scaled(bytes, ['B', 'kB', 'MB', 'GB', 'TB']);
const percent = (ratio) => `${(ratio * 100).toFixed(ratio > 0 && ratio < 0.0995 ? 2 : 1)} %`;
const milliseconds = (ms) => `${ms.toFixed(ms < 9.95 ? 1 : 0)} ms`;
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

function span(seconds) {
  const [d, h, min, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${min} min`;
  return min ? `${min} min ${s} s` : `${s} s`;
}

/** Local time of `date`, with the day if that is not today. */
function clock(date) {
  const time = date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  const today = date.toDateString() === new Date().toDateString();
  return today ? time : `${date.toLocaleDateString(undefined, { day: 'numeric', month: 'short' })} ${time}`;
}
const ago = (seconds) => clock(new Date(Date.now() - seconds * 1000));

const STATES = {
  ready: ['Up', 'ok'],
  silent: ['Silent', 'warn'],
  connecting: ['Down', 'bad'],
  refused: ['Refused', 'bad'],
  draining: ['Stopping', 'warn'],
};
const PERIODS = { run: 'since the client started', day: 'today (UTC)', month: 'this month (UTC)' };

// --- Elements; texts of others are set as text, never as HTML.

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Shows `text` in the element `id`, or hides that. */
function say(id, text) {
  const place = byId(id);
  place.hidden = !text;
  if (text && place.textContent !== text) place.textContent = text;
}

/** `text` whose figures stay with their units, and dates in one piece, where a line ends. */
const bound = (text) => text.replace(/(\d) (?=[kMGT]?(?:B|bit\/s)\b|ms\b|[%×])/g, '$1\u00a0').replace(/(\d)-(?=\d)/g, '$1\u2011');

/** Tiles as [title, class, figure, notes, [used, of]]. */
function tiles(list) {
  byId('tiles').replaceChildren(...list.map(([title, className, figure, notes, used]) => {
    const tile = element('div', `tile ${className}`);
    const [, number, unit] = figure.match(/^(\S+)(?: (.*))?$/);
    const shown = element('p', 'figure', number);
    if (unit) shown.append(' ', element('small', '', unit));
    tile.append(element('h2', '', title), shown);
    if (used) {
      const bar = element('progress', used[0] >= used[1] ? 'full' : '');
      [bar.value, bar.max] = used;
      bar.setAttribute('aria-label', `${title}: ${figure}`);
      tile.append(bar);
    }
    tile.append(...notes.filter(Boolean).map((note) => element('p', 'note', bound(note))));
    return tile;
  }));
}

// --- The link's state.

function showState(className, text, where) {
  byId('light').className = `light ${className}`;
  byId('state').textContent = text;
  byId('where').textContent = where;
  document.title = `${text} – bentpipe`;
}

function showClient(report, serverHeard) {
  const { tunnel } = report;
  const [word, className] = STATES[tunnel.state] ?? [tunnel.state, 'warn'];
  // IPv4 is mapped into IPv6 on the client's one socket.
  const peer = tunnel.peer ? `Server ${tunnel.peer.replace(/^\[::ffff:([\d.]+)\]/, '$1')}` : 'No server yet';
  const link = tunnel.link && tunnel.link.class !== 'auto' ? `, link class ${tunnel.link.class}` : '';
  const plain = report.transport === 'plain' ? ', plain TCP: neither encrypted nor authenticated' : '';
  showState(className, `${word} for ${span(tunnel.since_s)}`, `${peer}${link}${plain}. Since ${ago(tunnel.since_s)}.`);

  const wait = tunnel.next_attempt_s;
  const next = wait === undefined ? '' : wait === 0 ? ' The next attempt begins now.' : ` The next attempt is in ${span(wait)}.`;
  const cause = tunnel.last_error ? `: ${tunnel.last_error}` : '';
  const faults = {
    silent: serverHeard
      ? `The server is heard, but has answered nothing since ${ago(tunnel.since_s)}; connections wait${cause}.`
      : `Nothing has been heard from the server since ${ago(tunnel.last_heard_s ?? tunnel.since_s)}; connections wait${cause}.`,
    connecting: `The server has not been reached since ${ago(tunnel.since_s)}${cause}.${next}`,
    refused: `The server has refused this client since ${ago(tunnel.since_s)}${cause}.${next}`,
  };
  say('fault', faults[tunnel.state]);
  const usedUp = report.metering?.used_up && 'The cap of [metering] is used up.';
  const faultyKernel = (report.kernel ?? []).filter((part) => part.fault).map((part) => `${part.part}: ${part.fault}`);
  say('notice', [usedUp, ...faultyKernel].filter(Boolean).join(' '));
  tiles(clientTiles(report));
}

/** Tile of the last `bentpipe measure`: the first kind of transfer large, the others below it. */
function worthTile(measured) {
  const kinds = [['request', 'requests'], ['page', 'pages'], ['download', 'downloads'], ['upload', 'uploads']];
  const known = kinds.map(([key, name]) => [name, measured?.[`${key}_ratio`]]).filter(([, ratio]) => ratio !== undefined);
  const [[name, ratio], ...others] = known.length ? known : [[]];
  const times = (value) => `${value.toFixed(1)} ×`;
  const more = others.map(([other, value]) => `, ${other} ${times(value)}`).join('');
  return name && ['Worth of the tunnel', '', times(ratio), [`as fast as without: ${name}${more}`, `measured ${measured.began.slice(0, 10)}`]];
}

function clientTiles({ tunnel, flows, fec, metering, measured, ledger_bytes: ledger, bytes }) {
  const of = (column) => column.at(-1) && `capacity ${rate(column.at(-1))}, as far as is known`;
  const repairs = tunnel.fec;
  const total = (account) => Object.values(account).reduce((sum, one) => sum + one, 0);
  const [received, sent] = ledger ? [total(ledger.received), total(ledger.sent)] : [bytes.wire_in, bytes.wire_out];
  const crossed = `${size(received)} received, ${size(sent)} sent since the client started`;
  const cost = metering?.cost === undefined ? '' : `costs ${metering.cost.toFixed(2)}`;
  const cap = metering?.cap_bytes;
  const left = cap && `, ${size(Math.max(0, cap - metering.used_bytes))} left`;
  const period = metering && `${cap ? `of ${size(cap)} ` : ''}${PERIODS[metering.period]}${left || ''}${cost && `, ${cost}`}`;
  return [
    ['Received', 'received', rate(tunnel.recv_rate_bit_s), [of(samples.receive_capacity_bit_s)]],
    ['Sent', 'sent', rate(tunnel.send_rate_bit_s), [of(samples.send_capacity_bit_s)]],
    ['Round trip', 'rtt', tunnel.rtt_ms === undefined ? '–' : milliseconds(tunnel.rtt_ms),
      [tunnel.min_rtt_ms !== undefined && `lowest ${milliseconds(tunnel.min_rtt_ms)}`]],
    ['Loss', '', tunnel.rtt_ms === undefined ? '–' : percent(tunnel.loss_ratio), ['of the packets sent in this tunnel',
      repairs && `repairs brought ${size(repairs.recovered_bytes)} back and were ${percent(repairs.overhead_ratio)} of what left`]],
    ['Bytes on the link', '', metering ? size(metering.used_bytes) : size(received + sent), [period, crossed],
      cap && [metering.used_bytes, cap]],
    ['Connections', '', String(flows.active), [
      `${flows.waiting} waiting, ${flows.opened_total} opened, ${flows.refused_total} refused since the client started`]],
    worthTile(measured),
  ].filter(Boolean);
}

function showServer(report, clientsTotal) {
  const { clients } = report;
  const sum = (of) => clients.reduce((total, client) => total + of(client), 0);
  showState('ok', `Serving ${count(clientsTotal, 'client', 'clients')}`,
    `Server on ${report.listen.join(', ')}, up for ${span(report.uptime_s)}, since ${ago(report.uptime_s)}.`);
  say('fault', '');
  const missing = report.families && ['ipv4', 'ipv6'].filter((family) => !report.families[family]);
  const none = missing?.length === 2 && 'This machine has no route: connections of clients are refused.';
  say('notice', none || '');
  const memory = report.all_tunnels_memory;
  tiles([
    ['Sent to clients', 'sent', rate(samples.sent_bit_s.at(-1)), []],
    ['Received from clients', 'received', rate(samples.received_bit_s.at(-1)), []],
    ['Clients', '', String(clientsTotal), ['connected']],
    ['Connections', '', String(sum((client) => client.flows.active)), ['open']],
    ['Memory of tunnels', '', memory ? size(memory.used) : '–', [memory && `of ${size(memory.ceiling)}`], memory && [memory.used, memory.ceiling]],
  ]);
  showClients(clients, clientsTotal);
}

function showClients(clients, total) {
  byId('clients-section').hidden = false;
  byId('clients').replaceChildren(...clients.map(({ name, tunnel, flows, bytes }) => {
    const [word, className] = STATES[tunnel.state] ?? [tunnel.state, 'warn'];
    const row = element('tr');
    const named = element('td');
    named.append(element('span', `light ${className}`), name);
    named.title = `${name}: ${word}`;
    row.append(named, element('td', '', `${word} for ${span(tunnel.since_s)}`), ...[
      rate(tunnel.send_rate_bit_s),
      rate(tunnel.recv_rate_bit_s),
      tunnel.rtt_ms === undefined ? '–' : milliseconds(tunnel.rtt_ms),
      percent(tunnel.loss_ratio),
      String(flows.active),
      size(bytes.wire_out),
      size(bytes.wire_in),
    ].map((text) => element('td', '', text)));
    return row;
  }));
  const hidden = total - clients.length;
  const note = total === 0 ? 'No client is connected.' : hidden > 0 && `${hidden} more, which are less busy, are in bentpipe status.`;
  say('clients-note', note || '');
}

let shownEvents = '';
function showEvents(events) {
  const text = JSON.stringify(events);
  if (text === shownEvents) return;
  shownEvents = text;
  const words = { warn: 'Warning', error: 'Error' };
  const items = events.toReversed().map(({ at, level, text }) => {
    const item = element('li', level);
    const time = element('time', '', clock(new Date(at)));
    time.dateTime = at;
    const said = element('span', 'text');
    if (words[level]) said.append(element('b', '', words[level]));
    said.append(text);
    item.append(time, said);
    return item;
  });
  byId('events').replaceChildren(...(items.length ? items : [element('li', '', 'Nothing has happened yet.')]));
}

// --- Curves of the last ten minutes.

const COLUMNS = ['uptime_s', 'sent_bit_s', 'received_bit_s', 'send_capacity_bit_s', 'receive_capacity_bit_s', 'rtt_ms'];
const samples = Object.fromEntries(COLUMNS.map((name) => [name, []]));
const lastSecond = () => samples.uptime_s.at(-1);

function addSamples(fresh) {
  for (const name of COLUMNS) samples[name].push(...fresh[name]);
  const old = samples.uptime_s.filter((second) => second <= lastSecond() - KEPT_S).length;
  for (const name of COLUMNS) samples[name].splice(0, old);
}

const forget = () => COLUMNS.forEach((name) => samples[name].splice(0));

const relative = (seconds) => (seconds === 0 ? 'now' : `−${span(-seconds)}`);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const known = (column) => column.some((value) => value !== null);

/** Curves as [name, colour, column, whether dashed]. */
function drawnCurves(kind) {
  if (kind === 'rtt') return [['Round trip', 'rtt', samples.rtt_ms]];
  return [
    ['Received', 'received', samples.received_bit_s],
    ['Sent', 'sent', samples.sent_bit_s],
    ['Capacity in', 'received', samples.receive_capacity_bit_s, true],
    ['Capacity out', 'sent', samples.send_capacity_bit_s, true],
  ].filter(([, , column, dashed]) => !dashed || known(column));
}

class Chart {
  constructor(id, kind, format, least) {
    Object.assign(this, { holder: byId(id), kind, format, least, shape: '' });
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.holder);
  }

  size() {
    return { width: this.holder.clientWidth, height: this.holder.clientWidth < 600 ? 200 : 240 };
  }

  /** Throws the plot away, so that it is made anew in the colours of now. */
  drop() {
    this.plot?.destroy();
    this.plot = null;
  }

  draw() {
    const curves = drawnCurves(this.kind);
    const shape = curves.map(([name]) => name).join();
    if (shape !== this.shape) this.drop();
    this.shape = shape;
    const seconds = samples.uptime_s.map((second) => second - lastSecond());
    const data = [seconds, ...curves.map(([, , column]) => column)];
    if (this.plot) this.plot.setData(data);
    else this.plot = new uPlot(this.options(curves), data, this.holder);
  }

  options(curves) {
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 } };
    // Without a pointer the legend shows the last values.
    const at = (plot, series, index) => plot.data[series][index ?? plot.data[0].length - 1];
    const value = (plot, _, series, index) => {
      const shown = at(plot, series, index);
      return shown === null || shown === undefined ? '–' : this.format(shown);
    };
    const tick = (shown) => (shown === 0 ? '0' : this.format(shown).replace('.0 ', ' '));
    return {
      ...this.size(),
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: [-KEPT_S, 0] },
        y: { range: (_, low, high) => [0, Math.max(this.least, high * 1.1)] },
      },
      axes: [
        { ...axis, incrs: [120, 300], values: (_, ticks) => ticks.map((second) => (second === 0 ? 'now' : `${second / 60} min`.replace('-', '−'))) },
        { ...axis, size: 88, values: (_, ticks) => ticks.map(tick) },
      ],
      series: [
        { label: 'Time', value: (plot, _, series, index) => relative(at(plot, series, index)) },
        ...curves.map(([label, name, , dashed]) => ({
          label,
          value,
          stroke: colour(name),
          width: dashed ? 1 : 2,
          dash: dashed ? [6, 4] : undefined,
          fill: dashed ? undefined : `${colour(name)}22`,
          points: { show: false },
        })),
      ],
    };
  }
}

const charts = [new Chart('rate', 'rate', rate, 1000), new Chart('rtt', 'rtt', milliseconds, 1)];
const drawCharts = () => {
  byId('rtt-section').hidden = !known(samples.rtt_ms);
  if (lastSecond() === undefined) return;
  charts.filter(({ kind }) => kind === 'rate' || known(samples.rtt_ms)).forEach((chart) => chart.draw());
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  charts.forEach((chart) => chart.drop());
  drawCharts();
});

// --- Asking.

let heard = null;
let process = null;

function show({ shown, samples: fresh }) {
  const { report } = shown;
  addSamples(fresh);
  if (report.role === 'server') showServer(report, shown.clients_total);
  else showClient(report, shown.server_heard);
  drawCharts();
  showEvents(report.events ?? []);
  byId('footer').textContent = `bentpipe ${report.role} ${report.version}, process ${report.pid}, ${report.config_file}, up for ${span(report.uptime_s)}.`;
}

async function ask() {
  const after = lastSecond() === undefined ? '' : `?after=${lastSecond()}`;
  const response = await fetch(`/live.json${after}`, { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
  if (response.status === 401) return location.reload();
  if (!response.ok) throw new Error(`status ${response.status}`);
  const live = await response.json();
  const { pid, uptime_s: uptime } = live.shown.report;
  const fresh = live.samples.uptime_s;
  // Another daemon, or one that was started anew: its seconds are others.
  if (process !== null && (process !== pid || uptime < lastSecond())) {
    forget();
    process = null;
    if (fresh.length === 0 || after) return ask();
  }
  process = pid;
  show(live);
  heard = new Date();
}

function tellLoss() {
  const silent = heard && Math.round((Date.now() - heard) / 1000);
  const lost = heard ? silent >= 3 : true;
  document.body.classList.toggle('stale', lost);
  if (lost) document.title = 'No answer – bentpipe';
  const since = heard ? `for ${span(silent)}` : 'yet';
  const below = heard ? ` What is shown below is from ${clock(heard)}.` : '';
  say('lost', lost && `The daemon has not answered ${since}: it has stopped, or this device has lost the network to it.${below}`);
}

async function poll() {
  try {
    await ask();
    tellLoss();
  } catch (error) {
    console.debug(error);
    tellLoss();
  }
  // A page that nobody looks at asks nothing.
  if (document.hidden) await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
  setTimeout(poll, POLL_MS);
}
poll();
