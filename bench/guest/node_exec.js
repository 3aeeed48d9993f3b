/*
 * NodeExecSync, NodeSpawnSync: how long node takes to run a program and wait for it, as build tools
 * and agents do, through a shell and without. Speaks the lines of bench.h; the time of a batch of
 * ten, in ms, the median of three.
 *
 *     node node_exec.js [--ms N] [--dir NAME=PATH]... [ROW...]
 */
'use strict';
const child_process = require('child_process');
const fs = require('fs');

const BATCHES = 3;
const CALLS = 10;

const rows = {
	NodeExecSync: () => child_process.execSync('true', { stdio: 'pipe' }),
	NodeSpawnSync: () => {
		const done = child_process.spawnSync('/bin/true');

		if (done.error)
			throw done.error;
		if (done.status !== 0)
			throw new Error(`/bin/true ended with ${done.status}`);
	},
};

/* Each line in one write, and nothing buffered. */
function say(line)
{
	fs.writeSync(1, line + '\n');
}

function ask(line)
{
	const answer = Buffer.alloc(1);

	say(line);
	if (fs.readSync(0, answer, 0, 1) !== 1)
		process.exit(2);
}

function batch(call)
{
	const start = process.hrtime.bigint();

	for (let i = 0; i < CALLS; i++)
		call();
	return process.hrtime.bigint() - start;
}

function measure(row, call)
{
	const times = [];

	call();
	ask(`begin ${row}`);
	const begun = process.hrtime.bigint();
	for (let i = 0; i < BATCHES; i++)
		times.push(batch(call));
	const elapsed = process.hrtime.bigint() - begun;
	times.sort((a, b) => (a < b ? -1 : 1));
	const median = Number(times[BATCHES >> 1]) / 1e6;
	ask(`end ${row} ${median} ${BATCHES * CALLS} ${elapsed}`);
}

function main(args)
{
	while (args.length && args[0].startsWith('--'))
		args.splice(0, 2);
	for (const row of Object.keys(rows)) {
		if (args.length && !args.includes(row))
			continue;
		try {
			measure(row, rows[row]);
		} catch (error) {
			say(`fail ${row} ${String(error.message).split('\n')[0]}`);
		}
	}
}

main(process.argv.slice(2));
