// What the first 64 bytes of a frame say it is: an ARP request for our address, a ping, a datagram to our port, or none.
//
// header_i has the first byte of the frame in its highest bits; bytes that the frame does not have are 0. Frames whose
// sender cannot be answered (a group or our own address, port 0) are none of the three. One wire, at most, is 1.
module packet_class (
  input  logic [47:0]  mac_i,
  input  logic [31:0]  address_i,
  input  logic [15:0]  port_i,
  // Identification, lifetime, checksums and what follows them are of no concern here.
  // verilator lint_off UNUSEDSIGNAL
  input  logic [511:0] header_i,
  // verilator lint_on UNUSEDSIGNAL
  output logic         arp_o,
  output logic         ping_o,
  output logic         datagram_o
);

  // ARP for Ethernet and IPv4, operation 1.
  localparam logic [63:0] ArpRequest = 64'h0001_0800_0604_0001;

  logic [47:0] to;
  logic [31:0] source;
  logic        mine, packet, answerable, from_group, asked_by_group;

  // The lowest bit of the first byte says that an Ethernet address is a group.
  assign to             = header_i[511-:48];
  assign from_group     = header_i[456];
  assign asked_by_group = header_i[328];
  assign source         = header_i[303-:32];
  assign mine           = to == mac_i;

  assign arp_o = (mine || to == '1) && header_i[415-:16] == 16'h0806 && header_i[399-:64] == ArpRequest
              && header_i[207-:32] == address_i && !asked_by_group;

  // No options, no fragment. The sender is a host of the network: not this network, loopback, a group or ourselves.
  assign answerable = !from_group && source[31:24] != 8'd0 && source[31:24] != 8'd127 && source[31:24] < 8'd224
                   && source != address_i;
  assign packet = mine && header_i[415-:24] == 24'h08_0045 && header_i[349:336] == '0
               && header_i[271-:32] == address_i && answerable;

  assign ping_o     = packet && header_i[327-:8] == 8'd1 && header_i[239-:16] == 16'h0800;
  assign datagram_o = packet && header_i[327-:8] == 8'd17 && header_i[239-:16] != '0 && header_i[223-:16] == port_i;

endmodule
