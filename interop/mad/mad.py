"""The kernel's end of the interop suite's case of management datagrams: mad with libibumad of rdma-core.

mad.py            a server, which answers requests of the class of performance counters until it is ended
mad.py INDEX ADDR a client with the address of a GID index, which sends 50
"""
import ctypes
import ipaddress
import struct
import sys

MAD = 256
GET, RESPONSE, PERF = 1, 0x80, 4
DEVICE = b"rxe0"
umad = ctypes.CDLL("libibumad.so.3")
umad.umad_get_mad.restype = ctypes.c_void_p


def main(args):
    umad.umad_init()
    port = umad.umad_open_port(DEVICE, 1)
    if port < 0:
        sys.exit("umad_open_port: %d" % port)
    methods = (ctypes.c_long * 2)(0 if args else 1 << GET, 0)
    agent = umad.umad_register(port, PERF, 1, 0, methods)
    if agent < 0:
        sys.exit("umad_register: %d" % agent)
    head = umad.umad_size()
    buf = ctypes.create_string_buffer(head + MAD)
    if not args:
        serve(port, agent, head, buf)
    ask(port, agent, head, buf, int(args[0]), ipaddress.ip_address(args[1]))


def receive(port, buf, timeout):
    length = ctypes.c_int(MAD)
    got = umad.umad_recv(port, buf, ctypes.byref(length), timeout)
    if got < 0:
        sys.exit("umad_recv: %d" % got)
    return umad.umad_status(buf)


def serve(port, agent, head, buf):
    print("ready", flush=True)
    while True:
        receive(port, buf, -1)
        mad = bytearray(buf.raw[head:])
        mad[3] |= RESPONSE
        mad[24:40] = b"answer: " + bytes(mad[24:32])
        ctypes.memmove(ctypes.addressof(buf) + head, bytes(mad), MAD)
        sent = umad.umad_send(port, agent, buf, MAD, 0, 0)
        if sent < 0:
            sys.exit("umad_send: %d" % sent)


def ask(port, agent, head, buf, index, address):
    gid = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
    for i in range(50):
        data = b"call %03d" % i
        mad = struct.pack(">BBBBHHQHHI", 1, PERF, 1, GET, 0, 0, i + 1, 0x12, 0, i) + data
        ctypes.memset(buf, 0, head + MAD)
        ctypes.memmove(ctypes.addressof(buf) + head, mad, len(mad))
        umad.umad_set_addr(buf, 0, 1, 0, 0x80010000)
        # struct ib_mad_addr begins at byte 20; its global route at byte 32
        struct.pack_into("=BBBB16sI", buf, 32, 1, index, 64, 0, gid, 0)
        sent = umad.umad_send(port, agent, buf, MAD, 1000, 5)
        if sent < 0:
            sys.exit("umad_send: %d" % sent)
        status = receive(port, buf, 20000)
        if status != 0 or buf.raw[head + 24:head + 40] != b"answer: " + data:
            sys.exit("call %d: status %d, %r" % (i, status, buf.raw[head:head + 64]))
    print("50 answers")


main(sys.argv[1:])
