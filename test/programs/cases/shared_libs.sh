ldd /bin/ls | sed 's/(0x.*//' | sort
/lib64/ld-linux-x86-64.so.2 /bin/echo through ld.so
nproc | grep -c .
getconf PAGESIZE
