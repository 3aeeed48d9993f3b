# The fixed tree that the program tests work on; made in the current folder.
mkdir -p tree/{a,b,c}/{x,y,z} project
for d in tree/*/*; do
	for i in 1 2 3 4 5; do
		printf 'file %s in %s\nneedle %d\n' "$i" "$d" $((i * 7)) >"$d/f$i.txt"
	done
done
ln -s ../a/x/f1.txt tree/b/link
chmod 600 tree/a/x/f2.txt
printf '#include <stdio.h>\nint main(void) { printf("hello from gcc\\n"); return 7; }\n' >hello.c
