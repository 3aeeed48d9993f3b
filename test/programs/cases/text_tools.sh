# needs: perl gawk
perl -e 'print join(",", map { $_ ** 2 } 1..10), "\n"; my %h = (a => 1); open(my $f, "<", "hello.c"); print scalar(<$f>); exit 5'
echo "perl $?"
perl -e 'my $pid = fork; if (!$pid) { exit 3 } waitpid($pid, 0); print $? >> 8, "\n"; print `echo backtick`; $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; select(undef, undef, undef, 3)'
awk 'BEGIN { for (i = 0; i < 5; i++) printf "%d ", i * i; print ""; "echo sub" | getline x; print x; system("exit 2") }'
gawk 'BEGIN { n = split("c b a", v); asort(v); print v[1] v[2] v[3] }'
sed -n '1,2p;$=' hello.c
printf 'x\ny\n' | sed -e 's/x/X/;2d'
