#include "bench/driver/html.h"

/*
 * Costs are coloured from blue (faster than native) over none to orange and red (slower), which
 * eyes without red or green tell apart too; the backgrounds are pale (dark) enough for plain text.
 */
static const char style[] =
	":root{color-scheme:light dark;--bg:#fff;--fg:#1f2328;--muted:#59636e;--line:#d9dee3;"
	"--soft:#f5f7f9;--link:#0969da;--bad:#b3261e;--badbg:#ffe3e0;--warn:#7a4d00;--warnbg:#"
	"fff3cf;"
	"--f2:#b9dcf7;--f1:#deeffb;--n:transparent;--s1:#fff0cc;--s2:#ffdba6;--s3:#ffc09a;--s4:#"
	"ffa399}"
	"@media(prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e6edf3;--muted:#9ba4ae;"
	"--line:#2b323a;--soft:#171c22;--link:#6cb6ff;--bad:#ff8a80;--badbg:#4a1714;--warn:#f2cc60;"
	"--warnbg:#3a2d07;--f2:#0d4a78;--f1:#102f49;--s1:#3b300c;--s2:#553a08;--s3:#6b300f;"
	"--s4:#7d1f1b}}"
	"*{box-sizing:border-box}"
	"body{margin:0 auto;padding:24px 16px 64px;max-width:1480px;background:var(--bg);"
	"color:var(--fg);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',"
	"sans-serif;-webkit-text-size-adjust:100%}"
	"h1{font-size:26px;line-height:1.25;margin:0 0 4px}"
	"h2{font-size:21px;line-height:1.25;margin:56px 0 4px;padding-top:20px;"
	"border-top:1px solid var(--line)}"
	"h3{font-size:16px;margin:32px 0 4px}"
	"p{margin:6px 0 12px;max-width:80ch}a{color:var(--link)}"
	".muted,small{color:var(--muted)}small{font-size:11px}"
	"code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace}"
	"pre{margin:12px 0;padding:10px 12px;background:var(--soft);border:1px solid var(--line);"
	"border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}"
	"dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:3px 20px;margin:12px "
	"0}"
	"dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}"
	"nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin:14px 0}"
	".box{margin:12px 0;padding:10px 14px;border-radius:6px;border-left:5px solid}"
	".bad.box{background:var(--badbg);border-color:var(--bad)}"
	".warn.box{background:var(--warnbg);border-color:var(--warn)}"
	".box p{margin:4px 0}.box ul{margin:4px 0;padding-left:20px}"
	".key{display:flex;flex-wrap:wrap;gap:4px;margin:6px 0 12px;font-size:13px}"
	".key span{padding:2px 10px;border-radius:4px;border:1px solid var(--line)}"
	".scroll{overflow-x:auto;margin:10px 0 8px}"
	"table{border-collapse:separate;border-spacing:0;font-size:12.5px;line-height:1.35;"
	"font-variant-numeric:tabular-nums}"
	"th,td{padding:4px 5px;border-bottom:1px solid var(--line);text-align:right;"
	"white-space:nowrap;vertical-align:top}"
	"thead th{font-weight:600;vertical-align:bottom;background:var(--bg)}"
	"thead tr:last-child th{color:var(--muted);font-weight:400;font-size:12px;"
	"border-bottom:2px solid var(--line)}"
	"th[scope=row],thead th.row,th.runtime{text-align:left}"
	"th[scope=row]{position:sticky;left:0;z-index:1;background:var(--bg);font-weight:500;"
	"white-space:normal;overflow-wrap:break-word;min-width:178px;max-width:240px}"
	"th small{display:block;font-weight:400;line-height:1.3}th small.why{color:var(--bad)}"
	".first{border-left:2px solid var(--line)}"
	"td small{display:block;line-height:1.3}"
	"td.ratio{font-weight:600}td.ratio small{font-weight:400;color:inherit;opacity:.8}"
	"td.text{text-align:left;white-space:normal;font-size:12px;min-width:150px}"
	"td.text.fail{color:var(--bad)}td.text.skip{color:var(--muted)}"
	"td.lie{background:var(--badbg)!important;color:var(--bad);text-align:left;white-space:"
	"normal;"
	"border:2px solid var(--bad)}"
	"td.lie s{opacity:.7}"
	"tr.part "
	"th{color:var(--muted);font-weight:600;font-size:12px;padding-top:14px;text-align:left}"
	"tfoot td,tfoot th{border-bottom:none;background:var(--soft)}"
	"tfoot tr:first-child>*{border-top:2px solid var(--line)}tfoot th[scope=row]{"
	"background:var(--soft);font-weight:600}"
	".f2{background:var(--f2)}.f1{background:var(--f1)}.s1{background:var(--s1)}"
	".s2{background:var(--s2)}.s3{background:var(--s3)}.s4{background:var(--s4)}"
	".mark{display:inline-block;width:1em;margin-right:4px}"
	".onlight{color:var(--l)}@media(prefers-color-scheme:dark){.onlight{color:var(--d)}}"
	"figure{margin:20px 0 28px;max-width:960px}"
	"figcaption{font-size:14px}figcaption b{font-size:15px}"
	"figure svg{display:block;width:100%;min-width:600px;height:auto}"
	"figure svg.dark{display:none}"
	"@media(prefers-color-scheme:dark){figure svg.light{display:none}"
	"figure svg.dark{display:block}}"
	"@media(min-width:1280px){.scroll.fits{overflow:visible}.fits thead{position:sticky;top:0;"
	"z-index:2}}"
	"@media(max-width:640px){body{padding:16px 12px 40px}dl{grid-template-columns:1fr;gap:0}"
	"dd{margin-bottom:6px}th[scope=row]{min-width:120px;max-width:140px;font-size:12px}}"
	"@media print{body{max-width:none}.scroll{overflow:visible}h2{break-before:page}}";

void html_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&': fputs("&amp;", out); break;
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '"': fputs("&quot;", out); break;
		case '\'': fputs("&#39;", out); break;
		case '\n': putc('\n', out); break;
		default: putc((unsigned char)*text < ' ' ? ' ' : *text, out);
		}
	}
}

void html_begin(FILE *out, const char *title)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
	      out);
	html_text(out, title);
	fprintf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n", style);
}

void html_end(FILE *out)
{
	fputs("</body>\n</html>\n", out);
}
