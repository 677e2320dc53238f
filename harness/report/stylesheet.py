"""How the page looks: one style sheet, light, dark and on paper, from 320 pixels up."""

from __future__ import annotations

# The figures are drawn with the colours of harness.report.svg; on the page they follow its theme.
STYLE = """\
:root{color-scheme:light dark;--page:#fff;--soft:#f6f7f8;--ink:#1c2126;--faint:#5b6570;
--line:#dde1e6;
--link:#0a58b5;--good:#1a7f37;--good-soft:#e9f6ec;--bad:#b42318;--bad-soft:#fdeeec;--doubt:#8a6100;
--doubt-soft:#fbf3dd;--none:#5b6570;--none-soft:#eef0f2;--info:#0a58b5;--info-soft:#e8f0fb;
--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--soft:#1a1f26;--ink:#e4e8ec;--faint:#98a3ae;
--line:#2d343c;
--link:#7cb5ff;--good:#58c472;--good-soft:#14281b;--bad:#ff8479;--bad-soft:#331918;--doubt:#e0b34a;
--doubt-soft:#2e2611;--none:#98a3ae;--none-soft:#232931;--info:#7cb5ff;--info-soft:#142338}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;padding:1rem clamp(1rem,4vw,3rem) 3rem;max-width:84rem;background:var(--page);
color:var(--ink);
font:400 .9375rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;
overflow-wrap:anywhere}
a{color:var(--link);text-decoration:none}a:hover,a:focus-visible{text-decoration:underline}
header{display:grid;grid-template-columns:auto 1fr;gap:.2rem 1.5rem;align-items:center;
padding:.8rem 1.4rem;
border-radius:.6rem;background:var(--tint);border-left:.4rem solid var(--word)}
header .verdict{grid-row:span 2;margin:0;color:var(--word);font-size:clamp(1.5rem,3.4vw,2.4rem);
font-weight:700;
letter-spacing:.02em;line-height:1.1;overflow-wrap:normal}
header.inconclusive .verdict{font-size:clamp(1.3rem,2.4vw,1.8rem)}
header .verdict small{display:block;font-size:1rem;font-weight:600}
h1{margin:0;font-size:clamp(1.1rem,2vw,1.4rem);font-weight:600;line-height:1.3}
header .which{margin:0;color:var(--faint);font-size:.8125rem}
.pass{--word:var(--good);--tint:var(--good-soft)}.fail,.fails{--word:var(--bad);
--tint:var(--bad-soft)}
.finding,.finding .pass{--word:var(--info);--tint:var(--info-soft)}
.inconclusive{--word:var(--doubt);--tint:var(--doubt-soft)}.skipped{--word:var(--none);
--tint:var(--none-soft)}
h2{margin:2.4rem 0 .6rem;padding-top:1.2rem;border-top:1px solid var(--line);font-size:1.15rem;
font-weight:600}
h3{margin:1.4rem 0 .5rem;font-size:1rem;font-weight:600}
dl.terms{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.1rem;margin:.9rem 0 .4rem;
line-height:1.42}
dl.terms dt{padding-top:.1em}dl.terms dd{max-width:62rem}
p,ul{margin:.55rem 0;max-width:62rem}ul{padding-left:1.2rem}
.note,.proof,figcaption{color:var(--faint);font-size:.8125rem}
code,pre{font-family:var(--mono);font-size:.85em}
pre{margin:.7rem 0;padding:.8rem 1rem;overflow-x:auto;overflow-wrap:normal;border-radius:.45rem;
background:var(--soft);
line-height:1.45}pre code{font-size:.8125rem}
.ins{color:var(--good)}.del{color:var(--bad)}.at{color:var(--faint)}
.scroll{overflow-x:auto}.scroll:focus-visible,pre:focus-visible{outline:2px solid var(--link);
outline-offset:2px}
table{width:100%;border-collapse:collapse;margin:.7rem 0;font-size:.875rem;
font-variant-numeric:tabular-nums}
th{color:var(--faint);font-weight:500;font-size:.8125rem;vertical-align:bottom}
th,td{padding:.4rem .9rem .4rem 0;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;
overflow-wrap:break-word;min-width:4.5rem}td:first-child{min-width:5.4rem}
main>section:first-child td:first-child{min-width:min(13.8rem,40vw)}
th.right,td.right{min-width:5rem;text-align:right}th.center,td.center{text-align:center}
tr>:last-child{padding-right:0}
.w{display:inline-block;padding:.05em .55em;border-radius:1em;background:var(--tint);
color:var(--word);
font-size:.8125em;letter-spacing:.02em;overflow-wrap:normal}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:.45rem}
summary{padding:.5rem .9rem;cursor:pointer;font-weight:500}
details[open]>summary{border-bottom:1px solid var(--line)}
details>:not(summary){margin-left:.9rem;margin-right:.9rem}
figure{margin:1rem 0}figcaption{margin-top:.3rem}
figure svg{display:block;min-width:44rem;max-width:none;width:100%;height:auto}
svg [fill="#ffffff"]{fill:transparent}svg [fill="#1f2328"]{fill:var(--ink)}svg [fill="#59636e"]{
fill:var(--faint)}
svg [fill="#2da44e"]{fill:var(--good)}svg [fill="#cf222e"]{fill:var(--bad)}svg [fill="#bf8700"]{
fill:var(--doubt)}
svg [stroke="#1f2328"]{stroke:var(--ink)}svg [stroke="#59636e"]{stroke:var(--faint)}
svg [stroke="#d0d7de"]{stroke:var(--line)}svg [stroke="#cf222e"]{stroke:var(--bad)}
svg [stroke="#bf8700"]{stroke:var(--doubt)}
.grid .row{display:grid;grid-template-columns:minmax(11rem,23.5rem) 1fr;gap:.1rem 1rem;
padding:.15rem 0;
font-size:.8125rem}
.grid b{font-weight:400;color:var(--faint)}
.squares{display:flex;flex-wrap:wrap;gap:2px;align-content:center}
.grid i{display:inline-block;width:12px;height:12px;border:1px solid;border-radius:2px;
font:700 10px/10px var(--mono);text-align:center;vertical-align:-1px;overflow:hidden}
.grid i.pass{background:var(--good);border-color:var(--good)}
.grid i.fail{background:var(--bad);border-color:var(--bad);color:var(--page)}
.grid i.stated{color:var(--info)}.grid i.void{border-style:dashed;color:var(--faint)}
.grid i.unstated{background:var(--doubt);border-color:var(--doubt);color:var(--page)}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin-top:.5rem;color:var(--faint);
font-size:.8125rem}
dt{color:var(--faint);font-size:.8125rem}dd{margin:0}
nav{margin:1.6rem 0 0;font-size:.875rem}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0;padding:0;list-style:none;
max-width:none}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--faint);
font-size:.8125rem}
@media(min-width:46.01rem){td:first-child code{white-space:nowrap}}
@media(max-width:46rem){
dl.terms{grid-template-columns:1fr;gap:0}dl.terms dd{margin-bottom:.45rem}
header{grid-template-columns:1fr;padding:.9rem 1rem}header .verdict{grid-row:auto}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr,td{display:block;min-width:0}
tr{margin:.5rem 0;padding:.35rem .7rem;border:1px solid var(--line);border-radius:.45rem}
td,td.right,td.center{display:flex;justify-content:space-between;gap:1rem;padding:.18rem 0;border:0;
text-align:right;
overflow-wrap:anywhere}
td:first-child{text-align:left;font-weight:600}
td::before{content:attr(data-of);flex:0 1 45%;color:var(--faint);text-align:left;font-size:.8125rem}
td:first-child::before,td[data-of=""]::before{content:none}
td>span{min-width:0}
.grid .row{grid-template-columns:1fr;padding:.3rem 0}
figure svg{min-width:40rem}}
@media print{:root{--page:#fff;--soft:#f6f7f8;--ink:#000;--faint:#444;--line:#ccc;--link:#000}
body{max-width:none;padding:0;font-size:9.5pt}.scroll{overflow:visible}table{font-size:7.5pt;
line-height:1.35}
th,td{padding:.2rem .5rem .2rem 0;font-size:inherit;min-width:4.5em;overflow-wrap:anywhere}.proof{
font-size:inherit}
th:first-child,td:first-child{min-width:9em}td:first-child code{white-space:normal}
nav{display:none}pre{white-space:pre-wrap;overflow-wrap:anywhere}
details::details-content{content-visibility:visible;block-size:auto}
figure svg{min-width:0;max-width:100%}h2,h3,summary{break-after:avoid}tr,figure,header{
break-inside:avoid}
figure:has(.grid){break-inside:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
