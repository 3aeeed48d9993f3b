# needs: sqlite3
sqlite3 t.db 'create table t(a integer primary key, b text); begin; with recursive n(i) as (select 1 union all select i+1 from n where i<20000) insert into t select i, "row " || i from n; commit; select count(*), sum(a) from t; create index i on t(b); select a from t where b = "row 777";'
sqlite3 t.db 'pragma journal_mode=wal; insert into t values(99999, "wal"); select count(*) from t; pragma integrity_check;'
for i in 1 2 3 4; do sqlite3 -cmd '.timeout 20000' t.db "insert into t(b) values('p$i')" & done; wait
sqlite3 t.db 'select count(*) from t'
