# needs: node
cat >t.js <<'JS'
const cp = require('child_process'), fs = require('fs'), path = require('path'), os = require('os');
console.log(cp.execSync('echo sync').toString().trim());
console.log(cp.spawnSync('sh', ['-c', 'exit 3']).status);
cp.exec('echo async; exit 2', (e, out) => { console.log(out.trim(), e.code); next(); });
function next() {
  const c = cp.spawn('cat'); let got = '';
  c.stdout.on('data', d => got += d); c.on('close', code => { console.log(got, code); files(); });
  c.stdin.end('piped');
}
function files() {
  fs.writeFileSync('a.json', JSON.stringify({ a: [1, 2, 3] })); console.log(require(path.resolve('a.json')).a.length);
  fs.readdir('tree', (e, l) => { console.log(l.sort()); setTimeout(() => worker(), 5); });
}
function worker() {
  const { Worker } = require('worker_threads');
  new Worker('require("worker_threads").parentPort.postMessage(6*7)', { eval: true }).on('message', m => { console.log('worker', m); fork(); });
}
function fork() {
  fs.writeFileSync('child.js', 'process.on("message", m => { process.send(m * 2); process.disconnect(); })');
  const c = cp.fork('child.js'); c.on('message', m => console.log('fork', m)); c.on('exit', code => { console.log('exit', code); process.exitCode = 5; }); c.send(21);
}
JS
node t.js
