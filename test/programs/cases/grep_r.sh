grep -r needle tree | sort | md5sum
grep -rc file tree | sort | head
grep -rl 'needle 35' tree | sort
